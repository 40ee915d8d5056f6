"""One connection to a NATS server, by its official client, held to what a bus promises.

The client's own reconnecting is off: it would send again what was written while the server was away, and leave whoever
waits for an answer waiting. Who connects again is `nats`.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from nats import errors
from nats.aio.client import Client

from pointsman.bus.interface import MAX_PAYLOAD_BYTES, BusUnavailable
from pointsman.core.broker import Broker

_CONNECT_SECONDS = 3
_CLOSE_SECONDS = 1.0
_FLUSH_SECONDS = 3.0
_NOBODY = "pointsman.nobody"
_NEVER_SECONDS = 10**9


class BusMisconfigured(BusUnavailable):
    """The server answers, and will never do: it must be set up otherwise, or the URL written otherwise."""


class BrokerClient(Client):
    """The official client, but nothing is sent in the clear that was to be secret, and nothing late."""

    needs_tls = False

    def _connect_command(self) -> bytes:
        # The client uses TLS when the server asks for it. A server that does not would get the password in the clear.
        if self.needs_tls and not self._server_info.get("tls_required"):
            raise errors.SecureConnRequiredError
        return super()._connect_command()

    async def _process_op_err(self, e: Exception) -> None:
        self.drop_unsent()  # it would be waited for until the dead connection takes it
        await super()._process_op_err(e)

    async def flush(self, timeout: float = _FLUSH_SECONDS) -> None:  # noqa: ASYNC109  # the client's own signature
        """Return when the server has acted on what was written so far. Raises what the client raises.

        The client's own asks out of turn: its question overtakes a subscription that is not written yet. This one
        queues behind it, and what comes back is that nobody serves what it asks for.
        """
        with contextlib.suppress(errors.NoRespondersError):
            await self.request(_NOBODY, b"", timeout)

    def drop_unsent(self) -> None:
        """Forget what has not been written."""
        self._pending.clear()
        self._pending_data_size = 0

    async def abandon(self) -> None:
        """Let go at once, and send nothing more."""
        self.drop_unsent()
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        # A handshake that failed leaves a stream whose end is never told.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.close()


async def connected(
    broker: Broker, tls: ssl.SSLContext | None, lost: Callable[[], None], failed: Callable[[Exception], None]
) -> BrokerClient:
    """A connection that carries what it must. Raises BusUnavailable with the reason. `lost` is called when it ends."""
    client = BrokerClient()
    client.needs_tls = broker.is_secure

    async def on_closed() -> None:
        lost()

    async def on_error(error: Exception) -> None:
        failed(error)

    secret = broker.password.reveal() if broker.password is not None else None
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    try:
        await client.connect(
            f"{'tls' if broker.is_secure else 'nats'}://{host}:{broker.port}",
            name="pointsman",
            closed_cb=on_closed,
            error_cb=on_error,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_CONNECT_SECONDS,
            ping_interval=_NEVER_SECONDS,  # whoever holds it asks, and cuts a connection that does not answer
            pending_size=-1,
            user=broker.user or None,
            password=secret if broker.user else None,
            token=None if broker.user else secret,
            tls=(tls or ssl.create_default_context()) if broker.is_secure else None,
        )
    except errors.SecureConnRequiredError:
        await client.abandon()
        raise BusMisconfigured(
            f"the NATS server at {broker.told} offers no TLS, and nats_url begins with tls://"
        ) from None
    except (OSError, errors.Error, ssl.SSLError, TimeoutError) as error:
        await client.abandon()
        raise BusUnavailable(f"the NATS server at {broker.told} {_told(error)}") from None
    except BaseException:
        await client.abandon()
        raise
    if client.max_payload < MAX_PAYLOAD_BYTES:
        carried = client.max_payload
        await client.abandon()
        raise BusMisconfigured(
            f"the NATS server at {broker.told} carries {carried} bytes in one message, and {MAX_PAYLOAD_BYTES} are "
            "needed: set max_payload: 4MB in its configuration"
        )
    return client


def _told(error: Exception) -> str:
    """Never the server's own words."""
    if isinstance(error, errors.NoServersError):
        return "takes no connection; does it run?"
    if isinstance(error, errors.AuthorizationError) or "authorization violation" in str(error).lower():
        return "does not accept the user and password, or the token, of nats_url"
    return f"cannot be used: {type(error).__name__}"

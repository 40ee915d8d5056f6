"""Calls to a gateway from a command: whose, with which token, how long, and what is said when they fail.

Nothing here imports grpc before a call is made, so that `--help` costs no more than it must.
"""

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pointsman.cli.call_failures import Failure, TokenOrigin, failure_text
from pointsman.cli.gateway_options import GatewayOptions, gateway_options
from pointsman.cli.show import is_terminal
from pointsman.config.data_directory import ADMIN_TOKEN, default_data_directory
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.gateway_address import GatewayAddress, is_loopback
from pointsman.core.provider import check_name
from pointsman.core.secret import Secret

if TYPE_CHECKING:
    import grpc

DEFAULT_GATEWAY = "http://127.0.0.1:8782"
_DATA_DIR = "POINTSMAN_DATA_DIR"
"""The gateway's own variable for where its data is; whoever exports it need not name the token as well."""
ANSWER_SECONDS = 30.0
"""How long a call that only asks the gateway's own store may take."""
VERIFY_SECONDS = 120.0
"""A verification ends within 30 s, and begins again when the records changed meanwhile."""
_QUIET_SECONDS = 2.0
"""Whoever waits longer than this on a terminal is told what for."""
_TICK_SECONDS = 1.0

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class CallFailed(click.ClickException):
    """A call that ended in another status than OK."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code
        """Name of the gRPC status."""


@dataclass(frozen=True, slots=True)
class Access:
    """Which gateway, as whom, and for which account."""

    options: GatewayOptions
    account: str

    def command(self, words: str) -> str:
        """A next step, as it has to be typed: about the same account."""
        whose = "" if self.account == DEFAULT_ACCOUNT else f" --account {self.account}"
        return f"pointsman {words}{whose}"

    @contextlib.contextmanager
    def open(self) -> Iterator["Gateway"]:
        """A connection to it, made at the first call. Raises ClickException for files that cannot be used."""
        address = self.address()
        token, origin = _token(address, self.options.token_file, os.environ)
        from pointsman.rpc.channel import ChannelFileError, call_metadata, open_channel

        try:
            channel = open_channel(address)
        except ChannelFileError as error:
            raise click.ClickException(str(error)) from None
        with channel:
            yield Gateway(channel, address, call_metadata(token, self.account), origin)

    def address(self) -> GatewayAddress:
        """Where it is. Raises UsageError."""
        return self.options.address(DEFAULT_GATEWAY)


def _token(address: GatewayAddress, given: str, environ: Mapping[str, str]) -> tuple[Secret | None, TokenOrigin]:
    from pointsman.rpc.token_file import TokenFileError, read_token

    if given:
        try:
            return read_token(given), TokenOrigin(given)
        except TokenFileError as error:
            raise click.ClickException(str(error)) from None
    path = default_token_path(address, environ)
    if not path:
        return None, TokenOrigin("")
    try:
        os.stat(path)
        return read_token(path), TokenOrigin(path)
    except OSError as error:  # a gateway that asks for none is to be usable
        return None, TokenOrigin(path, (error.strerror or "cannot be read").lower())
    except TokenFileError as error:
        return None, TokenOrigin(path, str(error).removeprefix(f"token file {path}: "))


def default_token_path(address: GatewayAddress, environ: Mapping[str, str]) -> str:
    """The token of this machine's gateway; empty for another machine's, which must not be shown it."""
    if not is_loopback(address.host):
        return ""
    try:
        return str(_data_directory(environ) / ADMIN_TOKEN)
    except RuntimeError:  # a user without a home
        return ""


def _data_directory(environ: Mapping[str, str]) -> Path:
    return Path(environ[_DATA_DIR]) if environ.get(_DATA_DIR) else default_data_directory(environ)


class Gateway:
    """One gateway, for as long as a command runs."""

    def __init__(
        self,
        channel: "grpc.Channel",
        address: GatewayAddress,
        metadata: tuple[tuple[str, str], ...],
        token: TokenOrigin,
    ) -> None:
        from pointsman.rpc.gen.audit_pb2_grpc import AuditStub
        from pointsman.rpc.gen.budgets_pb2_grpc import BudgetsStub
        from pointsman.rpc.gen.control_pb2_grpc import ControlStub
        from pointsman.rpc.gen.openshell_pb2_grpc import OpenShellStub
        from pointsman.rpc.gen.policies_pb2_grpc import PoliciesStub
        from pointsman.rpc.gen.receipts_pb2_grpc import ReceiptsStub
        from pointsman.rpc.gen.usage_pb2_grpc import PricesStub, UsageStub

        self.audit = AuditStub(channel)
        self.control = ControlStub(channel)
        self.budgets = BudgetsStub(channel)
        self.prices = PricesStub(channel)
        self.usage = UsageStub(channel)
        self.receipts = ReceiptsStub(channel)
        self.openshell = OpenShellStub(channel)
        self.policies = PoliciesStub(channel)
        self._address = address
        self._metadata = metadata
        self._token = token
        self._opened_at = time.monotonic()

    def call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Answer]",
        request: Request,
        *,
        seconds: float = ANSWER_SECONDS,
        waiting_for: str = "",
    ) -> Answer:
        """The answer. Raises CallFailed. `waiting_for` is shown on a terminal when it takes long.

        So it is when each of many calls is quick: counted is from the first one on.
        """
        import grpc

        future = method.future(request, timeout=seconds, metadata=self._metadata)
        try:
            with _Waiting(waiting_for or f"an answer of {self._address.url}", self._opened_at) as waiting:
                waiting.tell()
                while True:
                    try:
                        return future.result(timeout=_TICK_SECONDS)
                    except grpc.FutureTimeoutError:
                        waiting.tell()
        except grpc.RpcError as error:
            code = future.code().name
            failure = Failure(code, future.details() or "", seconds)
            raise CallFailed(failure_text(failure, self._address, self._token), code) from error
        finally:
            future.cancel()


class _Waiting:
    """One line on a terminal that is overwritten, for as long as something takes."""

    def __init__(self, what: str, started: float) -> None:
        self._what = what
        self._started = started
        self._shown = False

    def __enter__(self) -> "_Waiting":
        return self

    def tell(self) -> None:
        passed = time.monotonic() - self._started
        if is_terminal(sys.stderr) and passed > _QUIET_SECONDS:
            self._shown = True
            click.echo(f"\r\x1b[Kpointsman: waiting for {self._what}, {passed:.0f} s", err=True, nl=False)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--gateway`, `--account` and what belongs to them, as one argument `access`."""

    @functools.wraps(command)
    def with_access(*, gateway: GatewayOptions, account: str, **others: Any) -> None:
        _check_text(others.values())
        try:
            check_name(account, "name of an account")
        except InvalidRequest as error:
            raise click.UsageError(f"--account: {error}") from None
        command(access=Access(gateway, account), **others)

    return gateway_options(
        click.option(
            "--account",
            default=DEFAULT_ACCOUNT,
            show_default=True,
            metavar="NAME",
            help="Whose records it is about.",
        )(with_access)
    )


def _check_text(values: Any) -> None:
    """Bytes that are no UTF-8 come as lone surrogates, which no message can carry."""
    for value in values:
        if isinstance(value, tuple):
            _check_text(value)
        elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise click.UsageError("an argument is not UTF-8; write it in UTF-8")

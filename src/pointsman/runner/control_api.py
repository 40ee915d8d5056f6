"""The calls that a user's key allows: to register this runner, and a model of it, and to see whether it is there."""

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import quote

from pointsman.core.context_options import read_context, written_context
from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.runner_endpoint import RunnerEndpoint
from pointsman.core.secret import Secret
from pointsman.events.printable import printable
from pointsman.runner.gateway_address import API, tls_context
from pointsman.runner.state import RunnerState, checked_identity

_SECONDS = 30.0
_LARGEST_ANSWER = 1024 * 1024
_LONGEST_TEXT = 500
_LONGEST_NAME = 256
"""Characters of an id, a name or an alias, as the allowlist has it."""
_UNAUTHENTICATED, _NOT_FOUND = 401, 404
_WITHOUT_KEY = (
    "it asks for a key; give --key-file FILE, made by 'pointsman key create NAME --permission runners:manage "
    "--permission models:create' there"
)
_ADVICE = {
    401: "the key is not accepted; look into --key-file, or have another made by 'pointsman key create'",
    403: "the key may not do this; it needs the permissions runners:manage and models:create",
}


class CallFailed(Exception):
    """The gateway was not reached, or refused. The text ends in what to do, and holds no key."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        """Of its answer; 0 where that is not what failed."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A model as the gateway knows it."""

    model_id: str
    alias: str
    context: str = ""
    """What is taken out of its conversations, as `core.context_options` writes it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A runner as the gateway sees it."""

    is_online: bool
    last_seen_at: str | None
    """In ISO 8601; None for never."""


class ControlApi:
    """A gateway's REST, as one user. No proxy, no redirect."""

    def __init__(self, gateway: GatewayAddress, key: Secret | None, seconds: float = _SECONDS) -> None:
        """`key` is None where the gateway may ask for none. Raises OSError for a file of authorities."""
        self._gateway = gateway
        self._key = key
        self._seconds = seconds
        self._tls = tls_context(gateway)

    def register(self, name: str, runner_id: str = "") -> RunnerState:
        """Register this machine, or give `runner_id` a new token, if it still exists. Raises CallFailed."""
        try:
            answer = self._call(
                "POST", "/runners/register", {"name": name, **({"runner_id": runner_id} if runner_id else {})}
            )
        except CallFailed as error:
            if not runner_id or error.status != _NOT_FOUND:
                raise
            return self.register(name)
        known_id, known_name, token = (answer.get(field) for field in ("id", "name", "token"))
        if not isinstance(known_id, str) or not isinstance(token, str) or not _is_name(known_name):
            raise self._strange()
        try:
            return RunnerState(known_id, known_name, checked_identity(known_id, token), self._gateway)
        except ValueError:
            raise self._strange() from None

    def register_model(
        self, runner_id: str, endpoint: RunnerEndpoint, identifier: str, context: str = ""
    ) -> Registered:
        """Make a model known; what is known already is answered as it is. Raises CallFailed."""
        wanted = {"name": identifier, "model_identifier": identifier, "api_endpoint": endpoint.url}
        if context:
            wanted["context"] = context
        answer = self._call("POST", f"/runners/{quote(runner_id, safe='')}/models", wanted)
        model_id, known_alias = answer.get("id"), answer.get("alias")
        same = (answer.get("model_identifier"), answer.get("api_endpoint")) == (identifier, endpoint.url)
        if not same or not _is_name(model_id) or not _is_name(known_alias):
            raise self._strange()  # and what has such an id would spoil the whole allowlist
        return Registered(model_id, known_alias, _context(answer.get("context")))

    def runner(self, runner_id: str) -> Seen:
        """How the gateway sees it. Raises CallFailed, with 404 for a runner that it does not have."""
        answer = self._call("GET", f"/runners/{quote(runner_id, safe='')}")
        online, at = answer.get("presence"), answer.get("last_seen_at")
        if online not in ("online", "offline") or not (at is None or _is_name(at)):
            raise self._strange()
        return Seen(online == "online", at)

    def _strange(self) -> CallFailed:
        return CallFailed(f"{self._where()} answered with something else than was asked for; are both of one version?")

    def _where(self) -> str:
        return f"the gateway at {self._gateway.url}"

    def _call(self, method: str, path: str, wanted: dict[str, str] | None = None) -> dict[str, Any]:
        fields = {"Accept": "application/json", **({"Content-Type": "application/json"} if wanted is not None else {})}
        if self._key is not None:
            fields["Authorization"] = f"Bearer {self._key.reveal()}"
        connection = self._connection()
        try:
            connection.request(method, API + path, json.dumps(wanted).encode() if wanted is not None else None, fields)
            response = connection.getresponse()
            status, data = response.status, response.read(_LARGEST_ANSWER + 1)
        except ssl.SSLCertVerificationError as error:
            raise CallFailed(
                f"{self._where()} is not what it must be: {error.verify_message}; see --gateway-ca"
            ) from None
        except ssl.SSLError:
            raise CallFailed(f"{self._where()} does not speak TLS as it must; is it served as http://?") from None
        except TimeoutError:
            raise CallFailed(f"{self._where()} did not answer within {self._seconds:g} s; look at its log") from None
        except OSError as error:
            reason = (error.strerror or "failed").lower()
            raise CallFailed(
                f"cannot reach {self._where()}: {reason}; does it run? 'runner register --gateway' says where"
            ) from None
        except http.client.HTTPException:
            raise CallFailed(f"{self._where()} does not speak HTTP; is it its control listener?") from None
        finally:
            connection.close()
        document = _object(data)
        if status in (200, 201) and document is not None:
            return document
        raise CallFailed(self._refusal(status, document), status)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._gateway.host, self._gateway.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._seconds, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._seconds)

    def _refusal(self, status: int, document: dict[str, Any] | None) -> str:
        error = document.get("error") if document is not None else None
        said = error.get("message") if isinstance(error, dict) else None
        if isinstance(error, dict) and "type" in error:  # OpenAI's form of an error, which a control listener has not
            return f"{self._where()} answered as a data listener does; --gateway names its control listener"
        if status in _ADVICE:
            advice = _WITHOUT_KEY if status == _UNAUTHENTICATED and self._key is None else _ADVICE[status]
            return f"{self._where()} answered with {status}: {advice}"
        if isinstance(said, str) and not (self._key is not None and self._key.appears_in(said)):
            return printable(said, _LONGEST_TEXT)
        return f"{self._where()} answered with status {status}; is it its control listener? Its log says more"


def _is_name(found: object) -> TypeGuard[str]:
    return isinstance(found, str) and 0 < len(found) <= _LONGEST_NAME and found.isprintable()


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data) if len(data) <= _LARGEST_ANSWER else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _context(value: Any) -> str:
    """Of a gateway that knows none, and of what is none, empty."""
    try:
        return written_context(read_context(value)) if isinstance(value, str) else ""
    except ValueError:
        return ""

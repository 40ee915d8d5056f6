"""What is sent to an upstream in place of what the client sent.

Authentication and framing are ours, a few harmless fields are the client's, the body differs in its `model` alone.
"""

import re
from typing import NamedTuple

import msgspec

from pointsman.core.candidate import Candidate
from pointsman.core.profiles import OPENAI_COMPATIBLE
from pointsman.routing.hops import FROM_SANDBOX, HOP_FIELD, onward
from pointsman.wire.headers import end_of_hop
from pointsman.wire.json_model import Pieces
from pointsman.wire.request import FieldValues

_COMMON = ("content-type", "accept", "accept-encoding", "user-agent")
_BEARER = "authorization"
_VERSION = re.compile(r"/v[0-9]+((alpha|beta)[0-9]*)?(/|$)")
_HOP = HOP_FIELD.encode("ascii")
_WRITTEN_APART = 32 * 1024
"""A larger body is not copied behind its head."""


class HeaderRules(NamedTuple):
    """What becomes of header fields on the way to one candidate; names in lower case."""

    kept: tuple[str, ...]
    """The client's, in alphabetical order."""
    defaults: tuple[tuple[str, str], ...]
    """With their values: sent unless the client sent one of that name."""
    credential: str
    """The one that carries the key."""


def header_rules(candidate: Candidate) -> HeaderRules:
    """By what is known of its provider's type."""
    profile = candidate.profile
    if profile is None:
        return HeaderRules(tuple(sorted(_COMMON)), (), _BEARER)
    defaults = profile.default_headers
    kept = {*_COMMON, *profile.passthrough_headers, *(name for name, _ in defaults)}
    return HeaderRules(tuple(sorted(kept)), defaults, profile.auth_header)


class RequestTemplate:
    """What does not change between requests to one candidate, encoded once.

    `credential` is the key in clear; the caller reveals it and keeps the template out of logs. `mark` is that of the
    gateway that sends them, empty for a sandbox.
    """

    __slots__ = ("_base_path", "_defaults", "_fixed", "_kept", "_mark", "model")

    def __init__(self, candidate: Candidate, credential: str, host: str, mark: bytes = b"") -> None:
        kept, defaults, header = header_rules(candidate)
        lines = [f"host: {host}"]
        if credential:
            lines.append(f"{header}: {'Bearer ' if header == _BEARER else ''}{credential}")
        if candidate.is_own_gateway and not mark:
            lines.append(f"{HOP_FIELD}: {FROM_SANDBOX.decode()}")
        self._mark = mark
        self._fixed = "".join(line + "\r\n" for line in lines).encode("latin-1")
        # Looked up in this order; the client's spelling of names carries no meaning.
        self._kept = tuple(name.encode("ascii") for name in kept)
        self._defaults = tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in defaults)
        self._base_path = base_path(candidate)
        self.model = msgspec.json.encode(candidate.model)
        """The upstream model as JSON bytes, ready to be spliced in."""

    def encode(self, method: str, path: str, values: FieldValues, body: Pieces) -> list[bytes | memoryview]:
        """A whole request: one piece, or a head and the pieces of a large body.

        `path` carries its query. The body gets a Content-Length.
        """
        if values.derived_by is not self:
            values.derived, values.derived_by = self._client_lines(values), self
        length = sum(map(len, body))
        framing = b"content-length: %d\r\n" % length if length or method != "GET" else b""
        line = f"{method} {self._base_path.join(path)} HTTP/1.1\r\n".encode("ascii")
        head = (line, self._fixed, values.derived, framing, b"\r\n")
        if length > _WRITTEN_APART:
            return [b"".join(head), *body]
        return [b"".join((*head, *body))]

    def _client_lines(self, values: FieldValues) -> bytes:
        kept = [name for name in self._kept if name in values]
        if b"connection" in values:
            options = end_of_hop([(b"connection", values[b"connection"])])
            kept = [name for name in kept if name not in options]
        lines = [name + b": " + values[name] + b"\r\n" for name in kept]
        lines += [name + b": " + value + b"\r\n" for name, value in self._defaults if name not in kept]
        if self._mark:
            lines.append(b"%b: %b\r\n" % (_HOP, onward(values.get(_HOP, b""), self._mark)))
        return b"".join(lines)


class BasePath(NamedTuple):
    """What request paths are appended to."""

    path: str
    is_whole: bool
    """Whether it stands for the `/v1` of theirs."""

    def join(self, path: str) -> str:
        """A request's path at this base; a `/v1` that both have appears once."""
        if (self.is_whole or self.path.endswith("/v1")) and (path == "/v1" or path.startswith("/v1/")):
            return self.path + path[3:]
        return self.path + path


def base_path(candidate: Candidate) -> BasePath:
    """Of a candidate; a model file's own path is none.

    An OpenAI-compatible provider whose base URL names a version (`/v1beta/openai`, `/api/paas/v4`) means it as its
    own libraries do: what follows is `/chat/completions`.
    """
    path = candidate.endpoint.path if candidate.endpoint.scheme != "gguf" else ""
    names_version = candidate.provider_type == OPENAI_COMPATIBLE and _VERSION.search(path) is not None
    return BasePath(path, candidate.base_is_whole or names_version)

"""What is sent to an upstream in place of what the client sent.

Authentication and framing are ours, a few harmless fields are the client's, the body differs in its `model` alone.
"""

import msgspec

from pointsman.core.candidate import Candidate

_COMMON = ("content-type", "accept", "accept-encoding", "user-agent")
_BEARER = "authorization"


class RequestTemplate:
    """What does not change between requests to one candidate, encoded once.

    `credential` is the key in clear; the caller reveals it and keeps the template out of logs.
    """

    __slots__ = ("_base_path", "_defaults", "_fixed", "_kept", "model")

    def __init__(self, candidate: Candidate, credential: str, host: str) -> None:
        profile = candidate.profile
        kept = {*_COMMON}
        header = _BEARER
        defaults: tuple[tuple[str, str], ...] = ()
        if profile is not None:
            header, defaults = profile.auth_header, profile.default_headers
            kept.update(profile.passthrough_headers, (name for name, _ in defaults))
        lines = [f"host: {host}"]
        if credential:
            lines.append(f"{header}: {'Bearer ' if header == _BEARER else ''}{credential}")
        self._fixed = "".join(line + "\r\n" for line in lines).encode("latin-1")
        # Looked up in this order; the client's spelling of names carries no meaning.
        self._kept = tuple(name.encode("ascii") for name in sorted(kept))
        self._defaults = tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in defaults)
        self._base_path = candidate.endpoint.path if candidate.endpoint.scheme != "gguf" else ""
        self.model = msgspec.json.encode(candidate.model)
        """The upstream model as JSON bytes, ready to be spliced in."""

    def encode(self, method: str, path: str, values: dict[bytes, bytes], pieces: tuple[bytes, ...]) -> bytes:
        """A whole request. `path` carries its query; `pieces` is the body, which gets a Content-Length."""
        lines = [f"{method} {join_path(self._base_path, path)} HTTP/1.1\r\n".encode("ascii"), self._fixed]
        lines += [name + b": " + values[name] + b"\r\n" for name in self._kept if name in values]
        lines += [name + b": " + value + b"\r\n" for name, value in self._defaults if name not in values]
        length = sum(map(len, pieces))
        lines.append(b"content-length: %d\r\n\r\n" % length if length or method != "GET" else b"\r\n")
        lines.extend(pieces)
        return b"".join(lines)


def join_path(base: str, path: str) -> str:
    """Append a request path to an endpoint's; a `/v1` that both have appears once."""
    if base.endswith("/v1") and (path == "/v1" or path.startswith("/v1/")):
        return base + path[3:]
    return base + path

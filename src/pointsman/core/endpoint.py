"""Where a candidate lives: a URL taken apart once, strictly."""

import ipaddress
import re
from dataclasses import dataclass

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.S)
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,=:@%-]*)*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 2048
_LONGEST_HOST = 253  # RFC 1035 section 2.3.4, without the trailing dot
_LONGEST_LABEL = 63
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An upstream base address.

    `scheme` is one of `http`, `https`, `mock`, `gguf`. For `gguf` the path is the model file and the host is
    empty; for `mock` everything behind the scheme is only a label.
    """

    scheme: str
    host: str
    port: int
    path: str
    """Without a trailing slash; empty for the root."""

    @property
    def authority(self) -> str:
        """`host` or `host:port`, as it belongs into a Host header; the scheme where there is no host."""
        if not self.host:
            return self.scheme
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def told(self) -> str:
        """Without the path, which may hold what is nobody's business: scheme and host are enough to see."""
        if self.scheme == "gguf":
            return f"gguf://{self.path}"
        return f"{self.scheme}://{self.authority if self.scheme != 'mock' else self.host}"


def parse_endpoint(text: str) -> Endpoint:
    """Take a base URL apart.

    Raises ValueError, with a reason fit for the operator, for anything but an `http`, `https`, `mock` or `gguf`
    URL without user info, query and fragment. No part of a URL that may hold a secret is repeated in it.
    """
    text = text.strip()
    if len(text) > _LONGEST_URL or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("is not a plain ASCII URL")
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError("is not a URL; write it as http://host:port/v1")
    scheme, authority, path = match["scheme"].lower(), match["authority"], match["path"]
    if "@" in authority:
        raise ValueError("must not carry a user name or password; put the key into api_key_env")
    if scheme == "mock":
        return Endpoint("mock", authority, 0, "")
    if match["rest"]:
        raise ValueError("must not carry a query or a fragment")
    if scheme == "gguf":
        return _model_file(authority, path)
    if scheme not in _DEFAULT_PORTS:
        raise ValueError("has an unknown scheme; use http://, https://, mock:// or gguf://")
    host, port = _split_authority(authority, _DEFAULT_PORTS[scheme])
    if not _PATH.fullmatch(path) or any(segment in (".", "..") for segment in _segments(path)):
        raise ValueError("has a path with characters or dot segments that are not allowed")
    return Endpoint(scheme, host, port, path.rstrip("/"))


def _segments(path: str) -> list[str]:
    return path.lower().replace("%2e", ".").replace("%2f", "/").split("/")


def _model_file(authority: str, path: str) -> Endpoint:
    if authority or len(path) < 2:
        raise ValueError("must name a file by its absolute path; write it as gguf:///models/small.gguf")
    if "%" in path:
        raise ValueError("must not be percent-encoded; name the file with model_path")
    return Endpoint("gguf", "", 0, path)


def _split_authority(authority: str, default_port: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or not re.fullmatch(r"[0-9A-Fa-f:.]+", host) or not _is_address(host, ipaddress.IPv6Address):
            raise ValueError("has a malformed IPv6 address; write it as http://[::1]:8000/v1")
    else:
        host, colon, digits = authority.partition(":")
        rest = colon + digits
        _check_host(host.lower())
    if not rest:
        return host.lower(), default_port
    digits = rest[1:]
    if rest[0] != ":" or not re.fullmatch(r"[1-9][0-9]{0,4}", digits) or int(digits) > 65535:
        raise ValueError("has a port that is not between 1 and 65535")
    return host.lower(), int(digits)


def _check_host(host: str) -> None:
    if not _HOST_NAME.fullmatch(host):
        raise ValueError("has no valid host name")
    labels = host.removesuffix(".").split(".")
    if len(host.removesuffix(".")) > _LONGEST_HOST or max(map(len, labels)) > _LONGEST_LABEL:
        raise ValueError(f"has a host name of over {_LONGEST_HOST} characters, or {_LONGEST_LABEL} between dots")
    # Resolvers take 127.1, 2130706433, 0x7f000001 and 010.0.0.1 for addresses, each in its own way: what was checked
    # here would not be what is dialled. A name whose last label is a number is an address or nothing.
    if _NUMERIC.fullmatch(labels[-1]) and not _is_address(host, ipaddress.IPv4Address):
        raise ValueError("spells an IP address in an ambiguous way; write four decimal numbers, as in 127.0.0.1")


def _is_address(text: str, family: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        family(text)
    except ValueError:
        return False
    return True

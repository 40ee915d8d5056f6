"""What can be asked: the clients, and what each is known to read. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from pointsman.core.candidate import INFERENCE_LOCAL


class Kind(StrEnum):
    """A program whose way to the door is known."""

    CURL = "curl"
    WGET = "wget"
    GIT = "git"
    OPENSSL = "openssl"
    PYTHON = "python"
    NODE = "node"
    DENO = "deno"
    BUN = "bun"
    JAVA = "java"


PYTHON_LIBRARIES = ("urllib", "requests", "httpx", "httpx2", "aiohttp", "openai", "anthropic")
NODE_LIBRARIES = ("openai", "@anthropic-ai/sdk")


@dataclass(frozen=True, slots=True)
class Client:
    """One thing that makes requests: a program, or a library of one."""

    kind: Kind
    path: str
    """Absolute path of the program."""
    version: str
    """Of the library where there is one, else of the program; empty when it would not say."""
    library: str = ""
    program_version: str = ""
    location: str = ""
    """Where the library is, when its program must be told."""

    @property
    def name(self) -> str:
        """What the operator calls it."""
        return f"{self.path.rpartition('/')[2]} {self.library}".rstrip()

    @property
    def words(self) -> frozenset[str]:
        """What it may be asked for by."""
        words = {self.kind.value, self.path.rpartition("/")[2], self.library} - {""}
        return frozenset(words | {"python3"} if self.kind is Kind.PYTHON else words)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a client finds itself in."""

    environ: Mapping[str, str]
    proxy_url: str
    """Of the door, as it should be in HTTPS_PROXY."""
    authority: str = ""
    """Path of a readable file with the door's authority; empty when none was found."""
    bundle: str = ""
    """Path of one that also holds the system's roots."""
    certificate_valid: bool = True
    """Whether the door's certificate and its authority are within their time."""
    by_hosts_file: bool = False
    """Whether the hosts file names the door and something serves it there."""
    hosts_file_inside: bool = False
    """Whether this stands for a sandbox whose hosts file will name the door, though this host's does not."""
    isolated: bool = False
    """Whether nothing but loopback exists: then no request can end up elsewhere."""


# Where each looks, in its own order; wget knows the lower-case names only.
_PROXY_NAMES = ("https_proxy", "HTTPS_PROXY")
_NO_PROXY_NAMES = ("no_proxy", "NO_PROXY")
_BASE_URLS = {
    "openai": ("OPENAI_BASE_URL", f"https://{INFERENCE_LOCAL}/v1"),
    "anthropic": ("ANTHROPIC_BASE_URL", f"https://{INFERENCE_LOCAL}"),
    "@anthropic-ai/sdk": ("ANTHROPIC_BASE_URL", f"https://{INFERENCE_LOCAL}"),
}
_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "@anthropic-ai/sdk": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
}


def wanted_base_url(client: Client) -> tuple[str, str] | None:
    """The variable that leads this SDK to the door, and its value; None for what takes a URL."""
    return _BASE_URLS.get(client.library)


def has_base_url(client: Client, environ: Mapping[str, str]) -> bool:
    """Whether this SDK is led to the door."""
    wanted = wanted_base_url(client)
    return wanted is None or environ.get(wanted[0], "").rstrip("/") == wanted[1]


def missing_key(client: Client, environ: Mapping[str, str]) -> str:
    """The variable whose absence keeps this SDK from starting; empty if there is none."""
    names = _KEYS.get(client.library, ())
    return names[0] if names and not any(environ.get(name) for name in names) else ""


def no_proxy_covers(value: str, host: str = INFERENCE_LOCAL) -> bool:
    """Whether some client would go past the proxy for `host` by this NO_PROXY: the union of their readings."""
    for entry in value.lower().replace(" ", ",").split(","):
        name = entry.strip().partition(":")[0].removeprefix("*").lstrip(".")
        if entry.strip() == "*" or (name and (host == name or host.endswith("." + name))):
            return True
    return False


def leads_to(value: str, proxy_url: str) -> bool:
    """Whether a proxy variable's value is the door's proxy."""
    try:
        return bool(value) and _address(value) == _address(proxy_url)
    except ValueError:
        return False


def _address(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return (parts.hostname or "").replace("localhost", "127.0.0.1"), parts.port


def reads_environment_proxy(version: str) -> bool:
    """Whether this Node's fetch can be told to use proxy variables.

    Source: Node's release notes; 24.0, and 22.21 for the long-term line before it.
    """
    major, minor = numbers(version)
    return major >= 24 or (major == 22 and minor >= 21)


def numbers(version: str) -> tuple[int, int]:
    """Major and minor; zeros where there are none."""
    match = re.match(r"v?(\d+)(?:\.(\d+))?", version)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


class Bypass(StrEnum):
    """Why a client does not even try the door's proxy."""

    NO_VARIABLES = "it reads no proxy variables"
    NOT_SWITCHED_ON = "it reads proxy variables only when told to"
    UNSET = "no proxy variable that it reads is set"
    OTHER = "its proxy variable leads elsewhere"
    EXEMPT = "NO_PROXY covers inference.local"
    BASE_URL = "its base URL leads elsewhere"


def bypass(client: Client, environ: Mapping[str, str], proxy_url: str, arguments: tuple[str, ...]) -> Bypass | None:
    """Why this client would go past the door's proxy, from what is known of it; None when it would use it."""
    if not has_base_url(client, environ):
        return Bypass.BASE_URL
    if client.kind is Kind.OPENSSL:  # told by an option, see `request`
        return None
    if client.kind is Kind.JAVA:
        options = f"{environ.get('JAVA_TOOL_OPTIONS', '')} {environ.get('JDK_JAVA_OPTIONS', '')}"
        host, port = _address(proxy_url)
        told = f"-Dhttps.proxyHost={host} -Dhttps.proxyPort={port}".split()
        return None if set(told) <= set(options.split()) else Bypass.NO_VARIABLES
    if client.kind is Kind.NODE:
        if not reads_environment_proxy(client.program_version or client.version):
            return Bypass.NO_VARIABLES
        if environ.get("NODE_USE_ENV_PROXY") != "1":
            return Bypass.NOT_SWITCHED_ON
    if client.library == "aiohttp" and "trust_env" not in arguments:
        return Bypass.NOT_SWITCHED_ON
    lower_only = client.kind is Kind.WGET
    value = _first(environ, _PROXY_NAMES[:1] if lower_only else _PROXY_NAMES)
    if not value:
        return Bypass.UNSET
    if not leads_to(value, proxy_url):
        return Bypass.OTHER
    exempt = no_proxy_covers(_first(environ, _NO_PROXY_NAMES[:1] if lower_only else _NO_PROXY_NAMES))
    return Bypass.EXEMPT if exempt else None


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")

"""Looks at the door from where clients stand: does it answer, what does it show, which file would verify it. A shell.

Only loopback addresses are dialled.
"""

import base64
import contextlib
import glob
import ipaddress
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.sandbox.doctor.regular_file import read_regular
from pointsman.sandbox.environment import AUTHORITY_VARIABLES, BUNDLE_VARIABLES

_SECONDS = 5.0  # on loopback; takes milliseconds
_LARGEST_BUNDLE = 4 * 1024 * 1024  # a system's roots are 0.25 MiB
_HEAD = 16 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_NAMES = ("ca-bundle.pem", "pointsman-ca.pem")
_DEFAULT_PROXY = "http://127.0.0.1:3128"


@dataclass(frozen=True, slots=True)
class DoorFacts:
    """What one look at an address of the door gave."""

    address: str
    """HOST:PORT."""
    error: str = ""
    """Why it came no further; empty when a request was answered."""
    connect_status: int = 0
    """Of the answer to CONNECT; 0 when there was none, or none was asked."""
    certificate: x509.Certificate | None = None
    http_status: int = 0
    """Of `GET /v1/models`."""
    marked: bool = False
    """Whether the answer was Pointsman's own, or came through it."""

    @property
    def is_door(self) -> bool:
        """Whether there is a point in asking clients."""
        return self.marked


@dataclass(frozen=True, slots=True)
class CaFile:
    """A file that a variable names, or that lies where such files lie."""

    variable: str
    """Empty for one that was found."""
    path: str
    error: str = ""
    """Why it cannot be read; empty when it can."""
    authority: x509.Certificate | None = None
    """The one in it that signed the door's certificate."""
    certificates: int = 0


def loopback_proxies(environ: Mapping[str, str]) -> list[str]:
    """Proxy URLs on this machine that the variables name, most likely first, and a sandbox's own."""
    urls = [environ.get(name, "") for name in PROXY_VARIABLES] + [_DEFAULT_PROXY]
    return list(dict.fromkeys(url for url in urls if url and is_loopback(url)))


def is_loopback(url: str) -> bool:
    """Whether a proxy URL leads to this machine, by its text alone."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
        return port is not None and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


def look_through_proxy(proxy_url: str) -> DoorFacts:
    """One request through a proxy on loopback. Blocks for at most some seconds; raises nothing."""
    parts = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    return _look(parts.hostname or "", parts.port or 0, connect=True)


def look_directly() -> DoorFacts | None:
    """The same at the address that the hosts file gives the door; None when it names no loopback one."""
    address = hosts_entry()
    return _look(address, 443, connect=False) if address else None


def hosts_entry(path: str = "/etc/hosts") -> str:
    """The loopback address that the hosts file gives the door, or an empty text."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            address, *names = line.partition("#")[0].split() or [""]
            if INFERENCE_LOCAL in (name.lower() for name in names) and is_loopback(f"http://{_bracketed(address)}:443"):
                return address
    return ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _look(host: str, port: int, *, connect: bool) -> DoorFacts:
    address = f"{_bracketed(host)}:{port}"
    status, certificate = 0, None
    try:
        with socket.create_connection((host, port), _SECONDS) as raw:
            if connect:
                raw.sendall(f"CONNECT {INFERENCE_LOCAL}:443 HTTP/1.1\r\nHost: {INFERENCE_LOCAL}:443\r\n\r\n".encode())
                status, _ = _head(raw)
                if status != 200:
                    return DoorFacts(address, f"it answered CONNECT with {status or 'nothing of HTTP'}", status)
            # What it shows is looked at, not believed: the question here is who would believe it.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(raw, server_hostname=INFERENCE_LOCAL) as tls:
                certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
                request = f"GET /v1/models HTTP/1.1\r\nHost: {INFERENCE_LOCAL}\r\nConnection: close\r\n\r\n"
                tls.sendall(request.encode())
                http_status, head = _head(tls)
    except ConnectionRefusedError:
        return DoorFacts(address, "nothing listens there", status, certificate)
    except TimeoutError:
        return DoorFacts(address, f"no answer within {_SECONDS:g} s", status, certificate)
    except (OSError, ValueError) as error:
        return DoorFacts(address, f"{type(error).__name__}: {error}", status, certificate)
    marked = b"x-pointsman-request-id:" in head.lower()
    what = "" if marked else "what answers there is not the door"
    return DoorFacts(address, what, status, certificate, http_status, marked)


def _head(connection: socket.socket) -> tuple[int, bytes]:
    """Status and bytes of a response's head; 0 when it is none."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _HEAD and (piece := connection.recv(4096)):
        data += piece
    match = re.match(rb"HTTP/1\.[01] (\d{3})", data)
    return (int(match[1]) if match else 0), data


def with_absolute_ca_paths(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """The environment with every relative path of a certificate variable completed by `directory`.

    A client reads it from where the operator stands, but is examined in another directory.
    """
    absolute = dict(environ)
    for name in (*BUNDLE_VARIABLES, *AUTHORITY_VARIABLES):
        if environ.get(name):
            absolute[name] = str(PurePath(directory, environ[name]))
    if environ.get("SSL_CERT_DIR"):
        places = environ["SSL_CERT_DIR"].split(os.pathsep)
        absolute["SSL_CERT_DIR"] = os.pathsep.join(str(PurePath(directory, each)) if each else "" for each in places)
    return absolute


def ca_files(environ: Mapping[str, str], leaf: x509.Certificate | None) -> list[CaFile]:
    """The files that the variables name, then others that a proxy on this machine wrote, and what each holds."""
    named = [(name, environ[name]) for name in (*BUNDLE_VARIABLES, *AUTHORITY_VARIABLES) if environ.get(name)]
    directories = dict.fromkeys(os.path.dirname(path) for _, path in named)
    found = [os.path.join(directory, name) for directory in directories for name in _NAMES]
    for temporary in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108  # only read
        found += [path for name in _NAMES for path in glob.glob(os.path.join(temporary, "pointsman-ca-*", name))]
    known = {path for _, path in named}
    others = [("", path) for path in dict.fromkeys(found) if path not in known and os.path.isfile(path)]
    cache: dict[str, CaFile] = {}
    return [_ca_file(variable, path, leaf, cache) for variable, path in (*named, *others)]


def _ca_file(variable: str, path: str, leaf: x509.Certificate | None, cache: dict[str, CaFile]) -> CaFile:
    if path not in cache:
        try:
            blocks = _CERTIFICATE.findall(read_regular(path, _LARGEST_BUNDLE))
        except OSError as error:
            cache[path] = CaFile("", path, (error.strerror or "error").lower())
        else:
            authority = _issuer(blocks, leaf) if leaf is not None else None
            cache[path] = CaFile("", path, "" if blocks else "holds no certificate", authority, len(blocks))
    seen = cache[path]
    return CaFile(variable, path, seen.error, seen.authority, seen.certificates)


def _issuer(blocks: Iterable[bytes], leaf: x509.Certificate) -> x509.Certificate | None:
    name = leaf.issuer.public_bytes()
    for block in blocks:
        try:
            # Only one that has the name is taken apart: among the system's roots are some that break the rules.
            if name not in base64.b64decode(block.split(b"-----")[2]):
                continue
            certificate = x509.load_pem_x509_certificate(block)
            leaf.verify_directly_issued_by(certificate)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return certificate
    return None


def only_loopback() -> bool:
    """Whether this network namespace has nothing but `lo`."""
    return {name for _, name in socket.if_nameindex()} == {"lo"}

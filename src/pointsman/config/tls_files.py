"""The certificate, key and authority that listeners show and ask for: whether the files can be used, before any starts.

Making a listener of them is `gateway.listeners`'.
"""

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from pointsman.config.text_file import Unreadable, open_regular


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of PEM."""

    cert: Path
    key: Path
    client_ca: Path | None = None


Finding = tuple[str, str, str]
"""Key, reason, next step."""


@dataclass(frozen=True, slots=True)
class TlsCheck:
    """What is wrong with the files, and what only deserves a word."""

    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


class _Encrypted(Exception):
    pass


def check_tls_files(tls: Tls) -> TlsCheck:
    """Look at the files. Never asks for a passphrase."""
    problems: list[Finding] = []
    warnings: list[Finding] = []
    named = [("tls.cert", tls.cert), ("tls.key", tls.key)]
    if tls.client_ca is not None:
        named.append(("tls.client_ca", tls.client_ca))
    readable = set()
    for name, path in named:
        try:
            descriptor, status = open_regular(os.fspath(path))
        except Unreadable as error:
            problems.append((name, f"{name} {path}: {error.problem.reason}", error.problem.next_step))
            continue
        os.close(descriptor)
        readable.add(name)
        if name == "tls.key" and status.st_mode & stat.S_IROTH:
            warnings.append((name, f"every user of this machine can read tls.key {path}", "chmod 600 it"))
    if {"tls.cert", "tls.key"} <= readable:
        problems.extend(_check_pair(tls))
    if tls.client_ca is not None and "tls.client_ca" in readable:
        problems.extend(_check_authority(tls.client_ca))
    return TlsCheck(tuple(problems), tuple(warnings))


def _check_pair(tls: Tls) -> tuple[Finding, ...]:
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)
    except _Encrypted:
        return (("tls.key", f"tls.key {tls.key} has a passphrase", "store it without one, with mode 600"),)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return (("tls.key", f"tls.key {tls.key} does not belong to the certificate", "name the key of tls.cert"),)
        return (_check_certificate(tls.cert),)
    except OSError as error:
        return (("tls.cert", f"tls.cert {tls.cert}: {(error.strerror or 'error').lower()}", "check it"),)
    return ()


def _check_certificate(path: Path) -> Finding:
    """Which of the two files is no PEM: OpenSSL does not say."""
    if _holds(path, b"-----BEGIN CERTIFICATE-----"):
        return ("tls.key", "tls.key holds no private key that is understood", "name a file with a PEM private key")
    return ("tls.cert", f"tls.cert {path} holds no certificate", "name a file of PEM certificates")


def _holds(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return mark in file.read(1024 * 1024)


def load_pair(context: ssl.SSLContext, tls: Tls) -> None:
    """Give a server's context its certificate and key. Raises OSError (ssl.SSLError is one) or _Encrypted."""

    def refuse() -> str:
        raise _Encrypted

    context.load_cert_chain(tls.cert, tls.key, password=refuse)


def _check_authority(path: Path) -> tuple[Finding, ...]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError):
        return (("tls.client_ca", f"tls.client_ca {path} holds no certificate", "name a file of PEM certificates"),)
    return ()

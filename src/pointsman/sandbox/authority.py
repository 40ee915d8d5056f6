"""The certificate authority of one sandbox run.

Its key and the leaf's key exist in memory only. The authority may sign for `inference.local` and nothing else, so
that trusting it in a sandbox costs nothing should its key ever leak.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pointsman.core.candidate import INFERENCE_LOCAL

_BACKDATED = timedelta(hours=1)  # clocks inside may be behind
_AUTHORITY_LIFE = timedelta(days=365)
_LEAF_LIFE = timedelta(days=2)
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, slots=True)
class CaFiles:
    """What clients inside are pointed at."""

    authority: Path
    """Our authority alone."""
    bundle: Path
    """The system's roots and our authority."""


class CertificateAuthority:
    """Signs one name, and renews its leaf while the sandbox runs."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._make_authority()
        self._context: ssl.SSLContext | None = None
        self._renew_at = 0.0

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def tls_context(self) -> ssl.SSLContext:
        """What to terminate the tunnel's TLS with now; a new leaf when half of the old one's life has passed."""
        if self._context is None or self._wall_clock() >= self._renew_at:
            self._context = self._make_context()
            self._renew_at = self._wall_clock() + _LEAF_LIFE.total_seconds() / 2
        return self._context

    def write(self, directory: Path, environ: Mapping[str, str]) -> CaFiles:
        """Write the certificate, and a bundle of it and the system's roots, for clients to trust."""
        directory.mkdir(parents=True, exist_ok=True)
        files = CaFiles(directory / "pointsman-ca.pem", directory / "ca-bundle.pem")
        roots = _system_roots(environ)
        for path, content in ((files.authority, self.pem), (files.bundle, roots + self.pem)):
            # A reader sees the old file or the new one, never a part of either.
            temporary = path.with_name(path.name + ".new")
            temporary.write_bytes(content)
            temporary.chmod(0o644)
            temporary.replace(path)
        return files

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall_clock(), UTC)

    def _make_authority(self) -> x509.Certificate:
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Pointsman"),
                x509.NameAttribute(NameOID.COMMON_NAME, "Pointsman Sandbox CA"),
            ]
        )
        permitted = [x509.DNSName(INFERENCE_LOCAL)]
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now() - _BACKDATED)
            .not_valid_after(self._now() + _AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.NameConstraints(permitted, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _make_leaf(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, INFERENCE_LOCAL)]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now() - _BACKDATED)
            .not_valid_after(self._now() + _LEAF_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(INFERENCE_LOCAL)]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate, key

    def _make_context(self) -> ssl.SSLContext:
        certificate, key = self._make_leaf()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A handshake with a P-256 leaf costs as much as a resumption; tickets would only be two more writes.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = _only_our_name
        pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _load_from_memory(context, pem)
        return context


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _only_our_name(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> int | None:
    # Some clients send the dot of a URL's fully qualified name; the door has it too.
    if name is None or name.lower().removesuffix(".") != INFERENCE_LOCAL:
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    return None


def _load_from_memory(context: ssl.SSLContext, pem: bytes) -> None:
    # The ssl module reads keys from paths only; this one leads to memory.
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _system_roots(environ: Mapping[str, str]) -> bytes:
    for name in (environ.get("SSL_CERT_FILE", ""), *_SYSTEM_BUNDLES):
        if name and Path(name).is_file():
            content = Path(name).read_bytes()
            return content if content.endswith(b"\n") else content + b"\n"
    return b""

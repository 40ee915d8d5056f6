"""Configuration files of the candidates, and the certificate that nginx and haproxy show.

nginx and haproxy are set up the way that serves them best here: one worker, kept-alive connections on both sides, no
access log, request bodies in memory, no TLS tickets.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.workloads import Kind, Surface
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """A self-signed P-256 certificate for inference.local, which is its own authority."""

    leaf: Path
    key: Path
    both: Path


def make_certificates(directory: Path) -> Certificates:
    """Write a certificate that is good for a day, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "inference.local")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("inference.local")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    leaf_pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files = Certificates(directory / "leaf.pem", directory / "key.pem", directory / "both.pem")
    files.leaf.write_bytes(leaf_pem)
    files.key.write_bytes(key_pem)
    files.both.write_bytes(leaf_pem + key_pem)
    return files


def nginx(surface: Surface, kind: Kind, port: int, upstream: int, work: Path, certificates: Certificates) -> str:
    """One listener, one upstream. Buffering is off where the answer is a stream, so that events are not delayed."""
    tls = ""
    if surface is Surface.TLS:
        tls = (
            f"ssl_certificate {certificates.leaf}; ssl_certificate_key {certificates.key};"
            " ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off; ssl_session_cache off;"
        )
    temporary = " ".join(
        f"{name}_temp_path {work}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off; worker_processes 1; pid {work}/nginx.pid; error_log stderr crit; worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log off; server_tokens off; {temporary}
  keepalive_timeout 75; keepalive_requests 1000000000;
  client_body_buffer_size 512k; client_max_body_size 10m;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048 {"ssl" if tls else ""}; {tls}
    location / {{
      proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 300s;
      proxy_buffering {"on" if kind is Kind.SMALL else "off"};
    }}
  }}
}}
"""


def haproxy(surface: Surface, port: int, upstream: int, certificates: Certificates) -> str:
    """One listener, one upstream. Without `http-no-delay` it holds events back."""
    tls = f"ssl crt {certificates.both} no-tls-tickets" if surface is Surface.TLS else ""
    return f"""
global
  maxconn 4096
  nbthread 1
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 30s
  timeout client 300s
  timeout server 300s
frontend in
  bind 127.0.0.1:{port} backlog 2048 {tls}
  default_backend up
backend up
  server up 127.0.0.1:{upstream}
"""


def pointsman_routes(upstream: int) -> str:
    """A route file with one direct route, which rewrites the model."""
    return f"""routes:
  - route: inference.local
    endpoint: "http://127.0.0.1:{upstream}/v1"
    model: {UPSTREAM_MODEL}
    protocols: [openai_chat_completions]
    api_key: bench
"""


UPSTREAM_MODEL = "bench-model"
"""What the upstream has to be asked for by Pointsman, whatever the client named."""

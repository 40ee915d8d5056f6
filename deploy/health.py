"""The container's health check: exits 0 if the gateway's data listener says that it is well. Standard library only.

    python3 health.py [https]

It asks 127.0.0.1:8780, its own container; so the certificate, which is made for other names, is not verified.
"""

import http.client
import ssl
import sys

ADDRESS = "127.0.0.1", 8780
SECONDS = 4.0


def status(scheme: str, address: tuple[str, int] = ADDRESS) -> int:
    """The status of GET /health. Raises OSError or http.client.HTTPException when there is none."""
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(*address, timeout=SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(*address, timeout=SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    try:
        answered = status(*sys.argv[1:2] or ["http"])
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"health: no answer: {error}")
    print(f"health: {answered}")
    sys.exit(answered != 200)

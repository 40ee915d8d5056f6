"""The container's health check: exits 0 if the gateway's data listener says that it is well. Standard library only.

    python3 health.py [http|https [PORT]]

It asks 127.0.0.1, its own container, port 8780 unless given; so the certificate, which is made for other names, is not
verified.
"""

import http.client
import ssl
import sys

HOST, PORT = "127.0.0.1", 8780
SECONDS = 4.0


def status(scheme: str = "http", port: str | int = PORT) -> int:
    """The status of GET /health. Raises OSError or http.client.HTTPException when there is none."""
    if scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            HOST, int(port), timeout=SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(HOST, int(port), timeout=SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    try:
        answered = status(*sys.argv[1:3])
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"health: no answer: {error}")
    print(f"health: {answered}")
    sys.exit(answered != 200)

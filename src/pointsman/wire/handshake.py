"""Why a TLS handshake with a client failed, in words that lead to its repair."""

HANDSHAKE_TIMEOUT = "handshake timed out"

_CAUSES = (
    # What the TLS library's reason contains, the word, and what to do. The first that fits counts.
    (
        ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE"),
        "ca_not_trusted",
        "the client does not trust this proxy's CA: give it ca-bundle.pem by SSL_CERT_FILE, or the variable it reads",
    ),
    (
        ("CERTIFICATE_EXPIRED",),
        "ca_not_trusted",
        "the client holds the proxy's certificate for expired: its clock is wrong",
    ),
    (
        ("UNRECOGNIZED_NAME", "CALLBACK_FAILED"),
        "wrong_name",
        "the client asked for another host than inference.local",
    ),
    (
        ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST"),
        "not_tls",
        "the client sent something other than TLS into the tunnel: the URL must begin with https://",
    ),
    (
        ("UNSUPPORTED_PROTOCOL", "PROTOCOL_VERSION", "NO_SHARED_CIPHER", "HANDSHAKE_FAILURE", "VERSION_TOO_LOW"),
        "tls_version",
        "the client and the proxy have no TLS version or cipher in common",
    ),
    ((HANDSHAKE_TIMEOUT.upper(),), "handshake_timeout", "the client did not finish the TLS handshake in time"),
    (
        ("CONNECTION CLOSED", "CONNECTION LOST", "EOF"),
        "handshake_ended",
        "the client closed the connection in the TLS handshake; some do so when they don't trust the CA",
    ),
)


def explain_handshake(reason: str) -> tuple[str, str]:
    """The stable word and the sentence for a failure, from what the TLS library said."""
    upper = reason.upper()
    for marks, word, sentence in _CAUSES:
        if any(mark in upper for mark in marks):
            return word, f"{sentence} ({reason})"
    return "handshake_error", reason

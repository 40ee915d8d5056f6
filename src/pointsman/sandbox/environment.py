"""The environment of a sandboxed command: the door in, the operator's secrets out. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.secret import Secret

PLACEHOLDER_KEY = "unused-the-door-adds-the-real-key"
"""SDKs refuse to start without a key; this one opens nothing."""

_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_NO_PROXY = "127.0.0.1,localhost,::1"
_BUNDLE = (
    "SSL_CERT_FILE",  # OpenSSL, Python's ssl, httpx
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "HTTPLIB2_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "BUNDLE_SSL_CA_CERT",
    "UV_SYSTEM_CERTS_FILE",
)
"""All of these replace a client's roots, so they get the system's roots and ours together."""
_ALONE = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
"""These add to a client's roots."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*(?:APIKEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"|(?:API|ACCESS|AUTH)_TOKENS|KEYS?|PASS|SSHPASS|PAT|AUTH)(?:_|$)"
    r"|^(?:AWS|AZURE|GCP|GCLOUD|GOOGLE|CLOUDSDK|VAULT|DOCKER|KUBE|POINTSMAN|OPENSHELL|PG|MYSQL|VSCODE)_?"
    r"|_PROXY$",  # a company's proxy: not reachable, and its URL often holds a password
    re.I,
)
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@")
"""A URL with a password."""
_REMOVED = frozenset(
    {
        "SSL_CERT_DIR",  # curl ignores SSL_CERT_FILE where it is set
        "SSLKEYLOGFILE",
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "XAUTHORITY",
        "WAYLAND_DISPLAY",
        "DISPLAY",
        "DATABASE_URL",
        "KUBECONFIG",
        "LD_PRELOAD",  # libraries of the operator's process, not of the command's
        "LD_AUDIT",
        "SUDO_COMMAND",
        "SUDO_USER",
        "SUDO_UID",
        "SUDO_GID",
        "ANTHROPIC_CUSTOM_HEADERS",  # Authorization, as often as not
        "CLAUDE_CODE_USE_BEDROCK",  # these lead past the door
        "CLAUDE_CODE_USE_VERTEX",
        "NODE_TLS_REJECT_UNAUTHORIZED",  # these leave a client that does not look at certificates
        "GIT_SSL_NO_VERIFY",
        "PYTHONHTTPSVERIFY",
        "XDG_CONFIG_HOME",  # the home directory is another one
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "TMUX",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "NETRC",
        "FTP_PROXY",
        "ftp_proxy",
    }
)


@dataclass(frozen=True, slots=True)
class Door:
    """What a command needs to know of its way out."""

    proxy_url: str
    authority: str
    """Path of the certificate authority alone."""
    bundle: str
    """Path of the system's roots and the authority."""


def sandbox_environment(
    base: Mapping[str, str],
    door: Door,
    *,
    secrets: Collection[Secret] = (),
    key_variables: Collection[str] = (),
) -> dict[str, str]:
    """The operator's environment, less what may be a credential, plus what leads clients to the door.

    Left out: names in `key_variables`, names that look like credentials or agents of them, and every variable whose
    value contains one of `secrets`.
    """
    environment = {
        name: value
        for name, value in base.items()
        if name not in key_variables
        and name not in _REMOVED
        and not _SECRET_NAME.search(name)
        and not _SECRET_VALUE.search(value)
        and not any(secret.appears_in(value) for secret in secrets)
    }
    environment.update(dict.fromkeys(_PROXY, door.proxy_url))
    environment.update(dict.fromkeys(("NO_PROXY", "no_proxy"), _NO_PROXY))
    environment.update(dict.fromkeys(_BUNDLE, door.bundle))
    environment.update(dict.fromkeys(_ALONE, door.authority))
    environment["NODE_USE_ENV_PROXY"] = "1"
    # The second name is that of older clients.
    environment["OPENAI_BASE_URL"] = environment["OPENAI_API_BASE"] = f"https://{INFERENCE_LOCAL}/v1"
    environment["ANTHROPIC_BASE_URL"] = f"https://{INFERENCE_LOCAL}"
    environment["OPENAI_API_KEY"] = environment["ANTHROPIC_API_KEY"] = PLACEHOLDER_KEY
    return environment

"""The environment of a sandboxed command: the door in, the operator's secrets out. Pure."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.secret import Secret

PLACEHOLDER_KEY = "unused-the-door-adds-the-real-key"
"""SDKs refuse to start without a key; this one opens nothing."""

_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
NO_PROXY = "127.0.0.1,localhost,::1"
"""What a client reaches without the proxy."""
BUNDLE_VARIABLES = (
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
    "CODEX_CA_CERTIFICATE",
)
"""All of these replace a client's roots, so they get the system's roots and ours together."""
AUTHORITY_VARIABLES = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
"""These add to a client's roots."""

_DOOR = f"https://{INFERENCE_LOCAL}"
_OPENCODE_CONFIGURATION = json.dumps(
    {
        "provider": {
            # Its libraries want the version in the base URL, also where the official SDK does not.
            "anthropic": {"options": {"baseURL": f"{_DOOR}/v1"}},
            "openai": {"options": {"baseURL": f"{_DOOR}/v1"}},
            "inference-local": {
                "npm": "@ai-sdk/openai-compatible",
                "name": INFERENCE_LOCAL,
                "options": {"baseURL": f"{_DOOR}/v1"},
                "models": {"default": {"name": "the route's model"}},
            },
        }
    },
    separators=(",", ":"),
)
_AGENTS = {
    "OPENAI_BASE_URL": f"{_DOOR}/v1",
    "OPENAI_API_BASE": f"{_DOOR}/v1",  # older clients' name
    "ANTHROPIC_BASE_URL": _DOOR,
    "OPENAI_API_KEY": PLACEHOLDER_KEY,
    "ANTHROPIC_API_KEY": PLACEHOLDER_KEY,
    "CODEX_OSS_BASE_URL": f"{_DOOR}/v1",  # the only base URL that Codex takes from the environment
    "OPENCODE_CONFIG_CONTENT": _OPENCODE_CONFIGURATION,
    # Telemetry, updates and lists of models would all be refused. Not trying keeps the log of refusals readable.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "AIDER_ANALYTICS": "false",
    "AIDER_CHECK_UPDATE": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
"""What clients read besides proxy and certificates."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:[A-Z0-9]*(?:APIKEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"|(?:API|ACCESS|AUTH)_TOKENS|KEYS?|PASS|SSHPASS|PAT|AUTH)(?:_|$)"
    r"|^(?:AWS|AZURE|GCP|GCLOUD|GOOGLE|CLOUDSDK|VAULT|DOCKER|KUBE|POINTSMAN|OPENSHELL|PG|MYSQL|VSCODE)_?"
    r"|_PROXY$",  # a company's proxy: not reachable, and its URL often holds a password
    re.I,
)
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@")
"""A URL with a password."""
_OTHER_DOOR = re.compile(
    r"^(?:ANTHROPIC|CLAUDE|CODEX|LLM|OPENAI|OPENCODE)_(?:\w+_)?"
    r"(?:AUTH|BASE|CONFIG|DIR|HEADERS|HOME|HOST|PATH|PORT|PROFILE|SOCKET|URL)(?:_|$)"
    r"|^CLAUDE_CODE_USE_"  # other makers' clouds
)
"""An agent's setting that names a place: an upstream past the door, or a directory with the operator's logins."""
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
        "CLAUDECODE",  # set by an agent for what it starts; the same agent then refuses to run
        "CLAUDE_CODE_ENTRYPOINT",
        "NODE_TLS_REJECT_UNAUTHORIZED",  # these leave a client that does not look at certificates
        "GIT_SSL_NO_VERIFY",
        "PYTHONHTTPSVERIFY",
        "XDG_CONFIG_HOME",  # the home directory is another one
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "TMUX",
        "OPENAI_ORG_ID",
        "OPENAI_ORGANIZATION",
        "OPENAI_PROJECT_ID",
        "OPENAI_API_TYPE",  # another maker's dialect
        "OPENAI_API_VERSION",
        "NETRC",
        "FTP_PROXY",
        "ftp_proxy",
    }
)


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable may be a credential, by its name or its value."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


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

    Left out: names in `key_variables`, names that look like credentials or agents of them, settings that would lead a
    client elsewhere, and every variable whose value contains one of `secrets`.
    """
    environment = {
        name: value
        for name, value in base.items()
        if name not in key_variables
        and name not in _REMOVED
        and not looks_secret(name, value)
        and not _OTHER_DOOR.search(name)
        and not any(secret.appears_in(value) for secret in secrets)
    }
    environment.update(dict.fromkeys(_PROXY, door.proxy_url))
    environment.update(dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY))
    environment.update(dict.fromkeys(BUNDLE_VARIABLES, door.bundle))
    environment.update(dict.fromkeys(AUTHORITY_VARIABLES, door.authority))
    environment["NODE_USE_ENV_PROXY"] = "1"
    environment.update(_AGENTS)
    return environment

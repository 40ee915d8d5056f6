"""The environment of a sandboxed command: what is kept, what is set, what is gone."""

import json

import pytest

from pointsman.core.secret import Secret
from pointsman.sandbox.environment import PLACEHOLDER_KEY, Door, sandbox_environment

DOOR = Door("http://127.0.0.1:3128", "/ca/alone.pem", "/ca/bundle.pem")


@pytest.mark.parametrize(
    "name",
    [
        "OPENROUTER_API_KEY",
        "SOME_APIKEY",
        "API_KEY",
        "API_KEYS",
        "GITHUB_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_AUTH_TOKEN",
        "github_token",
        "CLIENT_SECRET",
        "DB_PASSWORD",
        "DB_PASSWD",
        "KEY_PASSPHRASE",
        "GH_PAT",
        "NPM_CONFIG__AUTH",
        "SECRET_KEY_BASE",
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AZURE_CLIENT_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "VAULT_ADDR",
        "PGPASSWORD",
        "MYSQL_PWD",
        "POINTSMAN_GATEWAY",
        "OPENSHELL_ENDPOINT",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "DOCKER_HOST",
        "KUBECONFIG",
        "SSLKEYLOGFILE",
        "SSL_CERT_DIR",
        "OPENAI_ORG_ID",
        "GITHUBTOKEN",
        "GITHUB_TOKEN_FOR_CI",
        "SSHPASS",
        "API_TOKENS",
        "ANTHROPIC_CUSTOM_HEADERS",
        "npm_config_https_proxy",
        "FTP_PROXY",
        "VSCODE_GIT_IPC_HANDLE",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "CLAUDE_CODE_USE_BEDROCK",
        "XDG_CONFIG_HOME",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "LLM_USER_PATH",
        "OPENCODE_CONFIG",
        "OPENCODE_AUTH_CONTENT",
    ],
)
def test_what_looks_like_a_credential_or_leads_to_one_is_dropped(name: str) -> None:
    assert name not in sandbox_environment({name: "operator's"}, DOOR)


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_UNIX_SOCKET",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_API_BASE_URL",
        "OPENAI_API_HOST",
        "OPENAI_API_TYPE",
        "OPENCODE_MODELS_URL",
        "CLAUDECODE",
    ],
)
def test_what_would_lead_an_agent_elsewhere_is_dropped(name: str) -> None:
    assert name not in sandbox_environment({name: "operator's"}, DOOR)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LANG", "TERM", "TMPDIR", "PYTHONPATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR", "PASSAGE",
     "LD_LIBRARY_PATH", "MONKEYS", "MAX_TOKENS",
     "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "ANTHROPIC_MODEL", "CLAUDE_CODE_TMPDIR",
     "OPENCODE_PERMISSION", "NODE_PATH", "BASE_URL"],
)  # fmt: skip
def test_what_only_resembles_a_credential_is_kept(name: str) -> None:
    assert sandbox_environment({name: "operator's"}, DOOR)[name] == "operator's"


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (
            ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "grpc_proxy"),
            DOOR.proxy_url,
        ),
        (("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1"),
        (("NODE_USE_ENV_PROXY",), "1"),
        (
            (
                "SSL_CERT_FILE",
                "REQUESTS_CA_BUNDLE",
                "CURL_CA_BUNDLE",
                "GIT_SSL_CAINFO",
                "AWS_CA_BUNDLE",
                "PIP_CERT",
                "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
                "NIX_SSL_CERT_FILE",
                "HTTPLIB2_CA_CERTS",
                "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
                "CARGO_HTTP_CAINFO",
                "CODEX_CA_CERTIFICATE",
            ),
            DOOR.bundle,
        ),
        (("NODE_EXTRA_CA_CERTS",), DOOR.authority),
        (("OPENAI_BASE_URL", "OPENAI_API_BASE", "CODEX_OSS_BASE_URL"), "https://inference.local/v1"),
        (("ANTHROPIC_BASE_URL",), "https://inference.local"),
        (("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), PLACEHOLDER_KEY),
        (
            (
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
                "OPENCODE_DISABLE_AUTOUPDATE",
                "OPENCODE_DISABLE_MODELS_FETCH",
            ),
            "1",
        ),
        (("AIDER_ANALYTICS", "AIDER_CHECK_UPDATE"), "false"),
        (("LITELLM_LOCAL_MODEL_COST_MAP",), "True"),
    ],
)
def test_what_leads_to_the_door_is_set_whatever_the_operator_had(names: tuple[str, ...], value: str) -> None:
    for base in ({}, dict.fromkeys(names, "operator's")):
        environment = sandbox_environment(base, DOOR)
        assert {environment[name] for name in names} == {value}


def test_opencodes_providers_lead_to_the_door_whatever_the_operator_had() -> None:
    base = {"OPENCODE_CONFIG_CONTENT": '{"provider": {"openai": {"options": {"apiKey": "operator\'s"}}}}'}
    providers = json.loads(sandbox_environment(base, DOOR)["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert {each["options"]["baseURL"] for each in providers.values()} == {"https://inference.local/v1"}
    assert "operator" not in str(providers)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("sk-real-1234", False),
        ("Bearer sk-real-1234!", False),
        ("sk-real-123", True),
        ("SK-REAL-1234", True),
        ("", True),
    ],
)
def test_a_variable_whose_value_contains_a_key_is_dropped_whatever_its_name(value: str, kept: bool) -> None:
    secrets = [Secret("sk-other-9999"), Secret("sk-real-1234")]
    assert ("HARMLESS" in sandbox_environment({"HARMLESS": value}, DOOR, secrets=secrets)) is kept


def test_an_empty_key_drops_nothing() -> None:
    assert "HARMLESS" in sandbox_environment({"HARMLESS": "x"}, DOOR, secrets=[Secret("")])


def test_the_variable_a_route_takes_its_key_from_is_dropped_by_name() -> None:
    environment = sandbox_environment({"ODD": "x", "EVEN": "y"}, DOOR, key_variables=["ODD"])
    assert "ODD" not in environment
    assert environment["EVEN"] == "y"


def test_the_operators_mapping_is_left_as_it_was() -> None:
    base = {"HTTP_PROXY": "http://corporate", "GITHUB_TOKEN": "t"}
    sandbox_environment(base, DOOR)
    assert base == {"HTTP_PROXY": "http://corporate", "GITHUB_TOKEN": "t"}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("redis://:pw@host/0", False),
        ("https://user:pw@host/simple https://other", False),
        ("https://host:8080/a@b", True),
        ("ssh://git@host:22/repo", True),
    ],
)
def test_a_url_with_a_password_is_dropped_whatever_its_name(value: str, kept: bool) -> None:
    assert ("SOME_URL" in sandbox_environment({"SOME_URL": value}, DOOR)) is kept

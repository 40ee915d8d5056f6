"""The keys of the gateway's settings: their names everywhere, and what is said of them. Pure."""

import re
from dataclasses import dataclass

PREFIX = "POINTSMAN_"
"""Of the environment variables."""


_OPTIONS = {
    "auth.grpc": "--grpc-auth",
    "auth.data": "--data-auth",
    "auth.metrics": "--metrics-auth",
    "nats_url": "--nats",
    "tls.client_ca": "--client-ca",
}
"""Of keys whose option is not spelt as they are."""


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting."""

    path: str
    """Its place in the file, with dots: `listen.grpc`."""
    default: str
    """For people."""
    meaning: str
    example: str
    is_number: bool = False
    """Whether it may stand in the file without quotes though YAML takes it for a number."""
    is_list: bool = False
    """Whether it may be a list in the file; elsewhere its texts stand between commas."""

    @property
    def variable(self) -> str:
        """The environment variable: `POINTSMAN_LISTEN__GRPC`."""
        return variable_of(self.path)

    @property
    def option(self) -> str:
        """The option of `pointsman gateway`: `--listen-grpc`."""
        return _OPTIONS.get(self.path) or "--" + re.sub("[._]", "-", self.path)


def variable_of(path: str) -> str:
    """The environment variable of a key."""
    return PREFIX + path.upper().replace(".", "__")


KEYS = (
    SettingKey(
        "listen.data",
        "127.0.0.1:8780",
        "Listener for clients of models.",
        "0.0.0.0:8780",
    ),
    SettingKey("listen.control", "127.0.0.1:8781", "Listener of the REST interface.", "127.0.0.1:0"),
    SettingKey("listen.grpc", "127.0.0.1:8782", "Listener for sandboxes and the command line.", "'[::1]:8782'"),
    SettingKey(
        "data_dir",
        "`$XDG_DATA_HOME/pointsman`, else `~/.local/share/pointsman`",
        "Directory of what the gateway keeps. Made at first start, for its user alone.",
        "/var/lib/pointsman",
    ),
    SettingKey(
        "database_url",
        "SQLite in `data_dir`",
        "`sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`. Never shown again.",
        "postgresql://pointsman:…@db.example/pointsman",
    ),
    SettingKey(
        "key_file",
        "`credentials.key` in `data_dir`",
        "Key that provider credentials are encrypted with. Made at first start.",
        "/etc/pointsman/credentials.key",
    ),
    SettingKey(
        "auth.grpc",
        "`token`",
        "`token`: every call carries one. `none`: nobody is asked, for clients that cannot send one; on loopback only.",
        "none",
    ),
    SettingKey(
        "auth.data",
        "`auto`",
        "`keys`: every client of models carries one. `none`: nobody is asked, and everybody is the account `default`. "
        "`auto`: `none` while `listen.data` is on loopback, else `keys`.",
        "keys",
    ),
    SettingKey(
        "auth.metrics",
        "`token`",
        "`token`: whoever reads `/metrics` carries the admin's. `none`: nobody is asked there, for a scraper without a "
        "token; names of accounts, routes and providers are then for all who reach `listen.control`.",
        "none",
    ),
    SettingKey(
        "public_data_url",
        "none",
        "Base URL of the data listener as sandboxes on other machines reach it, with `/v1` at its end.",
        "https://gateway.example:8780/v1",
    ),
    SettingKey(
        "role",
        "`all`",
        "What this process is. `api`: the control plane, and where runners dial in; `data`: the data listener, with "
        "`/health`, `/stats` and `/metrics` on `listen.control`; `all`: both. Processes of one gateway share "
        "`database_url`, `key_file` and `nats_url`.",
        "data",
    ),
    SettingKey(
        "nats_url",
        "no other process",
        "`nats://` or `tls://`, `[USER:PASSWORD@]HOST[:PORT]`: the NATS server between the processes of one gateway, "
        "with `max_payload: 4MB`. A credential in it is never shown again.",
        "nats://nats.example:4222",
    ),
    SettingKey(
        "secrets_dir",
        "`/run/secrets`",
        "Directory of the files with the keys of providers: `PROVIDER_api_key`, read for every attempt.",
        "/run/secrets",
    ),
    SettingKey(
        "default_route",
        "none",
        "The route that a model name leads to which names no route.",
        "fast",
    ),
    SettingKey(
        "direct_allowed_cidrs",
        "none",
        "Networks, besides public ones, that models may lead to which users of accounts make; a list, or text with "
        "commas. Link-local and metadata addresses stay closed.",
        "[10.20.0.0/16]",
        is_list=True,
    ),
    SettingKey(
        "operation_log.dir",
        "`operations` in `data_dir`",
        "Directory of the daily files of what happened to each request.",
        "/var/log/pointsman",
    ),
    SettingKey("operation_log.keep_days", "30", "Days that they are kept, from 1 to 3650.", "30", is_number=True),
    SettingKey(
        "usage_keep_days",
        "400",
        "Days that the database keeps a row for each request, from 1 to 3650.",
        "400",
        is_number=True,
    ),
    SettingKey(
        "receipts",
        "`none`",
        "Which requests get a receipt, hashes of what was sent and answered: `none`, `all`, or those of routes by "
        "name; a list, or text with commas.",
        "[fast, cheap]",
        is_list=True,
    ),
    SettingKey(
        "tls.cert",
        "no TLS",
        "PEM certificate with its chain. All three listeners then speak TLS.",
        "/etc/pointsman/tls.crt",
    ),
    SettingKey("tls.key", "no TLS", "Its private key, PEM, without a passphrase.", "/etc/pointsman/tls.key"),
    SettingKey(
        "tls.client_ca",
        "anyone may connect",
        "PEM certificates. Whoever connects must show a certificate that one of them signed.",
        "/etc/pointsman/clients.crt",
    ),
)

BY_PATH = {key.path: key for key in KEYS}
SECTIONS = tuple(dict.fromkeys(key.path.partition(".")[0] for key in KEYS if "." in key.path))
"""Keys that hold keys."""

RECORDS = ("providers", "routes")
"""Lists of records: of the file alone."""

HABITS = {
    "database": "database_url",
    "db_url": "database_url",
    "dsn": "database_url",
    "datadir": "data_dir",
    "data_directory": "data_dir",
    "certificate": "tls.cert",
    "ca": "tls.client_ca",
    "http": "listen.control",
    "rest": "listen.control",
    "bind": "listen",
    "listeners": "listen",
    "ssl": "tls",
    "secrets": "secrets_dir",
    "chains": "routes",
    "log": "operation_log",
}
"""What other programs call our keys."""

CLIENT_VARIABLES = frozenset(
    {"POINTSMAN_GATEWAY", "POINTSMAN_TOKEN_FILE", "POINTSMAN_KEY", "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS"}
)
"""Variables of other commands, which may stand in the gateway's environment too."""
CLIENT_PREFIX = "POINTSMAN_GATEWAY_"
"""Of more of them."""

"""The gateway's settings, from `pointsman.yaml`, the environment and options, checked before anything starts.

Owns what each value means. Everything that is wrong is told at once. Which keys go together is `setting_checks`', which
there are `setting_keys`', where they stand `setting_sources`', and what is in the files of `tls` is `tls_files`'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pointsman.config.allowed_cidrs import read_allowed_cidrs
from pointsman.config.data_directory import default_data_directory
from pointsman.config.database_url import read_database_url, shown_database_url
from pointsman.config.gateway_records import FileRecords, records_of
from pointsman.config.listen_address import Address, parse_address
from pointsman.config.provider_entry import Surroundings
from pointsman.config.public_data_url import read_public_data_url
from pointsman.config.receipt_scope import read_receipt_scope
from pointsman.config.setting_checks import SettingChecks, default_route_warning
from pointsman.config.setting_keys import KEYS
from pointsman.config.setting_sources import Complaints, Given, gather
from pointsman.config.tls_files import Tls, check_tls_files
from pointsman.core.broker import parse_broker
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.provider import NAME_RULE, check_name
from pointsman.core.reach import Network
from pointsman.core.receipt import NO_RECEIPTS, ReceiptScope
from pointsman.core.secret import Secret

_LONGEST = 4096  # characters of any value; Linux' longest path
_DATABASE = "pointsman.db"
_KEY_FILE = "credentials.key"
_OPERATIONS = "operations"
_SECRETS = Path("/run/secrets")  # where Docker mounts them
_KEEP_DAYS = 30
_USAGE_KEEP_DAYS = 400  # a year, and the month that is compared with last year's
_LONGEST_KEPT = 3650


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the three listeners are."""

    data: Address
    control: Address
    grpc: Address


DEFAULT_LISTEN = Listen(Address("127.0.0.1", 8780), Address("127.0.0.1", 8781), Address("127.0.0.1", 8782))


Role = Literal["all", "api", "data"]
_ROLES: dict[str, Role] = {"all": "all", "api": "api", "data": "data"}


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who is asked for a token."""

    grpc: Literal["token", "none"] = "token"
    data: Literal["auto", "keys", "none"] = "auto"
    """`auto`: `none` while the data listener is on loopback, else `keys`."""
    metrics: Literal["token", "none"] = "token"
    """Of `/metrics` on the control listener."""


@dataclass(frozen=True, slots=True)
class OperationLogSettings:
    """Where the daily files of requests are, and for how long."""

    dir: Path
    keep_days: int = _KEEP_DAYS


@dataclass(frozen=True, slots=True)
class Settings:
    """A gateway's settings; all paths are absolute."""

    listen: Listen
    data_dir: Path
    database_url: Secret
    """`sqlite:///PATH` or `postgresql://…`; it may hold a password."""
    key_file: Path
    auth: AuthSettings
    tls: Tls | None
    """When given, all listeners speak TLS."""
    operation_log: OperationLogSettings
    secrets_dir: Path = _SECRETS
    public_data_url: str = ""
    """Without a slash at its end; empty when nobody said."""
    default_route: str = ""
    """Empty for none."""
    direct_allowed_cidrs: tuple[Network, ...] = ()
    role: Role = "all"
    nats_url: Secret | None = None
    """None for a gateway of one process. It may hold a password."""
    usage_keep_days: int = _USAGE_KEEP_DAYS
    """Days that usage rows stay."""
    receipts: ReceiptScope = NO_RECEIPTS
    records: FileRecords = field(default_factory=FileRecords)
    """What the file defines besides."""
    warnings: tuple[str, ...] = ()
    """Lines `PLACE: what; next step`, for the caller to print."""
    sources: tuple[tuple[str, str], ...] = ()
    """Where each key's value comes from, in the order of the keys; `default` where nobody gave one."""

    def shown(self) -> dict[str, str]:
        """Each key's value for people; a database's address without what may be a password."""
        tls = self.tls
        return {
            "listen.data": str(self.listen.data),
            "listen.control": str(self.listen.control),
            "listen.grpc": str(self.listen.grpc),
            "data_dir": str(self.data_dir),
            "database_url": shown_database_url(self.database_url),
            "key_file": str(self.key_file),
            "auth.grpc": self.auth.grpc,
            "auth.data": self.auth.data,
            "auth.metrics": self.auth.metrics,
            "public_data_url": self.public_data_url,
            "role": self.role,
            "nats_url": parse_broker(self.nats_url).shown if self.nats_url else "",
            "secrets_dir": str(self.secrets_dir),
            "default_route": self.default_route,
            "direct_allowed_cidrs": ", ".join(map(str, self.direct_allowed_cidrs)),
            "operation_log.dir": str(self.operation_log.dir),
            "operation_log.keep_days": str(self.operation_log.keep_days),
            "usage_keep_days": str(self.usage_keep_days),
            "receipts": str(self.receipts),
            "tls.cert": str(tls.cert) if tls else "",
            "tls.key": str(tls.key) if tls else "",
            "tls.client_ca": str(tls.client_ca or "") if tls else "",
        }


def load_settings(
    path: Path | None,
    environ: Mapping[str, str],
    options: Mapping[str, str] | None = None,
    *,
    allow_degraded: bool = False,
) -> Settings:
    """The settings and records of a file (none if `path` is None), of the environment, and of options by key.

    An option wins over a variable, which wins over the file. Relative paths start at the file's directory, those of
    variables and options at the working directory. Raises SettingsError with every problem; opens the files of `tls`
    and of local models, and makes none. With `allow_degraded` a model's file may be missing.
    """
    complaints = Complaints()
    gathered = gather(path, environ, options or {}, complaints)
    settings = _Reader(gathered.settings, environ, complaints).read()
    if gathered.file is not None:
        around = Surroundings(gathered.file.directory, settings.secrets_dir, environ, allow_degraded)
        records, problems = records_of(gathered.file, around)
        complaints.extend(gathered.file.place, problems)
        routes = {route.name for route in records.routes}
        place = dict(settings.sources)["default_route"]
        unknown = default_route_warning(settings.default_route, place, routes)
        warnings = (*settings.warnings, *records.warnings, *unknown)
        settings = replace(settings, records=records, warnings=warnings)
    complaints.raise_any()
    return settings


class _Reader:
    """Turns texts into values; what cannot be right is replaced by its default, so that the rest can be read."""

    def __init__(self, given: Mapping[str, Given], environ: Mapping[str, str], complaints: Complaints) -> None:
        self._given = given
        self._environ = environ
        self._complaints = complaints
        self._warnings: list[str] = []

    def read(self) -> Settings:
        listen, auth = self._listen(), self._auth()
        data_dir = self._data_dir()
        database_url = self._database_url(data_dir)
        key_file = self._path("key_file") or data_dir / _KEY_FILE
        tls = self._tls()
        checks = SettingChecks(self._given, self._complaints, self._warnings)
        checks.check((listen.data, listen.control, listen.grpc), data_auth=auth.data, grpc_auth=auth.grpc)
        return Settings(
            listen,
            data_dir,
            database_url,
            key_file,
            auth,
            tls,
            OperationLogSettings(
                self._path("operation_log.dir") or data_dir / _OPERATIONS,
                self._days("operation_log.keep_days", _KEEP_DAYS),
            ),
            secrets_dir=self._path("secrets_dir") or _SECRETS,
            public_data_url=self._public_data_url(),
            default_route=self._default_route(),
            direct_allowed_cidrs=self._allowed_cidrs("direct_allowed_cidrs"),
            role=self._role(),
            nats_url=self._nats_url(),
            usage_keep_days=self._days("usage_keep_days", _USAGE_KEEP_DAYS),
            receipts=self._receipts(),
            warnings=tuple(self._warnings),
            sources=tuple((key.path, self._source(key.path)) for key in KEYS),
        )

    def _source(self, key: str) -> str:
        return self._given[key].source if key in self._given else "default"

    def _text(self, key: str) -> str | None:
        given = self._given.get(key)
        if given is None:
            return None
        text = given.text.strip()
        if not text:
            self._complaints.about(given, f"{key} is empty", "give it a value, or remove it")
        elif len(text) > _LONGEST:
            self._complaints.about(given, f"{key} is longer than {_LONGEST} characters", "check it")
        elif not text.isprintable():
            self._complaints.about(given, f"{key} holds a control character", "write it again")
        else:
            return text
        return None

    def _listen(self) -> Listen:
        return Listen(
            self._address("listen.data", DEFAULT_LISTEN.data),
            self._address("listen.control", DEFAULT_LISTEN.control),
            self._address("listen.grpc", DEFAULT_LISTEN.grpc),
        )

    def _address(self, key: str, default: Address) -> Address:
        text = self._text(key)
        if text is None:
            return default
        try:
            return parse_address(text)
        except ValueError as error:
            next_step = f"write an IP address and a port, for example {default} or '[::1]:{default.port}'"
            self._complaints.about(self._given[key], f"{key} {error}", next_step)
            return default

    def _auth(self) -> AuthSettings:
        grpc: Literal["token", "none"] = "token"
        data: Literal["auto", "keys", "none"] = "auto"
        match self._text("auth.grpc"):
            case None | "token":
                pass
            case "none":
                grpc = "none"
            case _:
                self._complaints.about(self._given["auth.grpc"], "auth.grpc is neither token nor none", "write token")
        match self._text("auth.data"):
            case None | "auto":
                pass
            case "keys":
                data = "keys"
            case "none":
                data = "none"
            case _:
                self._complaints.about(
                    self._given["auth.data"], "auth.data is neither auto, keys nor none", "write auto"
                )
        return AuthSettings(grpc, data, self._metrics_auth())

    def _metrics_auth(self) -> Literal["token", "none"]:
        match self._text("auth.metrics"):
            case None | "token":
                return "token"
            case "none":
                return "none"
            case _:
                given = self._given["auth.metrics"]
                self._complaints.about(given, "auth.metrics is neither token nor none", "write token")
                return "token"

    def _role(self) -> Role:
        text = self._text("role")
        if text is None:
            return "all"
        given, role = self._given["role"], _ROLES.get(text, "all")
        if text not in _ROLES:
            self._complaints.about(given, "role is neither all, api nor data", "write all")
        elif role != "all" and "nats_url" not in self._given:
            reason = f"role {role} is one process of several, and there is no nats_url between them"
            self._complaints.about(given, reason, "set nats_url, or leave role out")
        return role

    def _nats_url(self) -> Secret | None:
        text = self._text("nats_url")
        if text is None:
            return None
        try:
            parse_broker(Secret(text))
        except ValueError as error:
            next_step = "write nats://HOST:PORT or tls://USER:PASSWORD@HOST:PORT"
            self._complaints.about(self._given["nats_url"], f"nats_url {error}", next_step)
            return None
        return Secret(text)

    def _days(self, key: str, default: int) -> int:
        text = self._text(key)
        if text is None:
            return default
        if text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= _LONGEST_KEPT:
            return int(text)
        reason = f"{key} is no whole number from 1 to {_LONGEST_KEPT}"
        self._complaints.about(self._given[key], reason, f"write days, as in {default}")
        return default

    def _default_route(self) -> str:
        text = self._text("default_route")
        try:
            if text is not None:
                check_name(text)
        except InvalidRequest:
            self._complaints.about(self._given["default_route"], "default_route names no route", f"use {NAME_RULE}")
            return ""
        return text or ""

    def _allowed_cidrs(self, key: str) -> tuple[Network, ...]:
        text = self._text(key)
        try:
            return () if text is None else read_allowed_cidrs(text)
        except ValueError as error:
            self._complaints.about(self._given[key], f"{key} {error}", "write it as [10.20.0.0/16, 'fd00::/64']")
        return ()

    def _receipts(self) -> ReceiptScope:
        text = self._text("receipts")
        try:
            return NO_RECEIPTS if text is None else read_receipt_scope(text)
        except ValueError as error:
            self._complaints.about(self._given["receipts"], f"receipts {error}", "write none, all or [fast, cheap]")
        return NO_RECEIPTS

    def _public_data_url(self) -> str:
        text = self._text("public_data_url")
        if text is None:
            return ""
        given = self._given["public_data_url"]
        try:
            url, is_clear = read_public_data_url(text)
        except ValueError as error:
            self._complaints.about(given, f"public_data_url {error}", "write it as https://gateway.example:8780/v1")
            return ""
        if is_clear:
            reason = "public_data_url is in clear text: whoever is on the way can read tokens and prompts"
            self._warnings.append(f"{given.source}: {reason}; set tls.cert and tls.key, and write https://")
        return url

    def _path(self, key: str) -> Path | None:
        text = self._text(key)
        if text is None:
            return None
        if text.startswith("~"):
            self._complaints.about(self._given[key], f"{key} begins with ~, which is not expanded", "write it in full")
            return None
        return self._given[key].directory / text

    def _data_dir(self) -> Path:
        given = self._path("data_dir")
        if given is not None or "data_dir" in self._given:
            return given or Path("/")  # the latter is never used: there was a problem
        try:
            return default_data_directory(self._environ)
        except RuntimeError:
            self._complaints.add("data_dir", 0, "the user of this process has no home", "give --data-dir DIR")
            return Path("/")

    def _database_url(self, data_dir: Path) -> Secret:
        text = self._text("database_url")
        if text is None:
            return Secret(f"sqlite:///{data_dir / _DATABASE}")
        given = self._given["database_url"]
        try:
            return Secret(read_database_url(text, given.directory))
        except ValueError as error:
            next_step = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
            self._complaints.about(given, f"database_url {error}", next_step)
            return Secret("")

    def _tls(self) -> Tls | None:
        cert, key, client_ca = (self._path(f"tls.{name}") for name in ("cert", "key", "client_ca"))
        if cert is None or key is None:
            present = [name for name in ("tls.cert", "tls.key", "tls.client_ca") if name in self._given]
            missing = " and ".join(name for name in ("tls.cert", "tls.key") if name not in self._given)
            if present and missing:
                self._complaints.about(
                    self._given[present[0]], f"{present[0]} is given without {missing}", f"add {missing}"
                )
            return None
        if client_ca is None and "tls.client_ca" in self._given:
            return None
        tls = Tls(cert, key, client_ca)
        check = check_tls_files(tls)
        for name, reason, next_step in check.problems:
            self._complaints.about(self._given[name], reason, next_step)
        for name, reason, next_step in check.warnings:
            self._warnings.append(f"{self._given[name].source}: {reason}; {next_step}")
        return tls

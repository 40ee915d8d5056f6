"""The gateway's settings, from `pointsman.yaml`, the environment and options, checked before anything starts.

Owns what each value means and which go together. Everything that is wrong is told at once. Which keys there are is
`setting_keys`', where they stand `setting_sources`', and what is in the files of `tls` is `tls_files`'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pointsman.config.data_directory import default_data_directory
from pointsman.config.database_url import read_database_url, shown_database_url
from pointsman.config.listen_address import Address, parse_address
from pointsman.config.setting_keys import KEYS
from pointsman.config.setting_sources import Complaints, Given, gather
from pointsman.config.tls_files import Tls, check_tls_files
from pointsman.core.secret import Secret

_LONGEST = 4096  # characters of any value; Linux' longest path
_DATABASE = "pointsman.db"
_KEY_FILE = "credentials.key"
_LISTENERS = ("listen.data", "listen.control", "listen.grpc")


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the three listeners are."""

    data: Address
    control: Address
    grpc: Address


DEFAULT_LISTEN = Listen(Address("127.0.0.1", 8780), Address("127.0.0.1", 8781), Address("127.0.0.1", 8782))


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who is asked for a token."""

    grpc: Literal["token", "none"] = "token"


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
            "tls.cert": str(tls.cert) if tls else "",
            "tls.key": str(tls.key) if tls else "",
            "tls.client_ca": str(tls.client_ca or "") if tls else "",
        }


def load_settings(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file (none if `path` is None), of the environment, and of options by key.

    An option wins over a variable, which wins over the file. Relative paths start at the file's directory, those of
    variables and options at the working directory. Raises SettingsError with every problem; opens the files of `tls`
    and makes none.
    """
    complaints = Complaints()
    given = gather(path, environ, options or {}, complaints)
    settings = _Reader(given, environ, complaints).read()
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
        self._check_listeners(listen)
        self._check_reach(listen, auth)
        self._check_readers()
        sources = tuple((key.path, self._source(key.path)) for key in KEYS)
        return Settings(listen, data_dir, database_url, key_file, auth, tls, tuple(self._warnings), sources)

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
        match self._text("auth.grpc"):
            case None | "token":
                return AuthSettings()
            case "none":
                return AuthSettings("none")
        self._complaints.about(self._given["auth.grpc"], "auth.grpc is neither token nor none", "write token")
        return AuthSettings()

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

    # What goes together

    def _check_listeners(self, listen: Listen) -> None:
        listeners = dict(zip(_LISTENERS, (listen.data, listen.control, listen.grpc), strict=True))
        for i, (name, address) in enumerate(listeners.items()):
            for other in _LISTENERS[:i]:
                if address.overlaps(listeners[other]):
                    given = self._given.get(name) or self._given[other]
                    reason = f"{other} and {name} are both on port {address.port}"
                    self._complaints.about(given, reason, "give each listener a port of its own")

    def _check_reach(self, listen: Listen, auth: AuthSettings) -> None:
        has_tls = "tls.cert" in self._given and "tls.key" in self._given
        for name, address in zip(_LISTENERS, (listen.data, listen.control, listen.grpc), strict=True):
            if not address.is_loopback and not has_tls:
                reason = f"{name} {address} can be reached from other machines, and there is no TLS"
                self._complaints.about(self._given[name], reason, "set tls.cert and tls.key, or listen on 127.0.0.1")
        if auth.grpc != "none":
            return
        given = self._given["auth.grpc"]
        if listen.grpc.is_loopback:
            reason = "auth.grpc is none: everybody on this machine may read and change what the gateway keeps"
            self._warnings.append(f"{given.source}: {reason}; use token where the clients can send one")
        else:
            reason = f"auth.grpc is none while listen.grpc {listen.grpc} can be reached from other machines"
            self._complaints.about(given, reason, "set auth.grpc to token, or listen.grpc to 127.0.0.1")

    def _check_readers(self) -> None:
        given = self._given.get("database_url")
        if given is not None and given.public and "@" in given.text:
            reason = "every user of this machine can read this file, and database_url may hold a password"
            self._warnings.append(f"{given.source}: {reason}; chmod 600 it")

"""Real databases: a PostgreSQL server of the run's own, and new databases of both kinds, each with a key file."""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import trustme

from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore, open_store
from tests.support import evidence
from tests.support.ports import free_ports

_ROLE = "pointsman"
_READY = "database system is ready to accept connections"
_START_SECONDS = 60


def _programs() -> Path:
    """Where Debian keeps the server, which is not on PATH; else wherever PATH says."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise AssertionError("no PostgreSQL server; next: apt-get install postgresql (make setup does it when root)")
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


class PostgresServer:
    """A server with its data in a directory of its own. It refuses to run as root, so root runs it as `postgres`."""

    def __init__(self) -> None:
        self.password = secrets.token_hex(12)
        self.port = free_ports(1)[0]
        self.log: list[str] = []
        self._programs = _programs()
        # Not below pytest's directory, nor the checkout: another user could not enter those.
        self.directory = Path(tempfile.mkdtemp(prefix="pointsman-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.authority = trustme.CA()
        self._initialise()

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        password_file.chmod(0o644)
        command = [str(self._programs / "initdb"), "--no-sync", "-E", "UTF8", "--locale=C.UTF-8", "-U", _ROLE]
        command += ["-A", "scram-sha-256", "--pwfile", str(password_file), "-D", str(self.directory / "data")]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self._as)
        assert done.returncode == 0, done.stderr
        self._certify()

    def _certify(self) -> None:
        certificate = self.authority.issue_cert("localhost")
        chain = self.directory / "server.crt"
        certificate.cert_chain_pems[0].write_to_path(chain)
        chain.chmod(0o644)  # whatever the umask: the server is another user's
        key = self.directory / "server.key"
        certificate.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        if "user" in self._as:
            os.chown(key, self._as["user"], self._as["group"])

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.directory / "data"), "-p", str(self.port)]
        for setting in (
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.directory}",
            "ssl=on",
            f"ssl_cert_file={self.directory}/server.crt",
            f"ssl_key_file={self.directory}/server.key",
            "lc_messages=C",
            "fsync=off",
            "max_connections=60",
        ):
            command += ["-c", setting]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/", **self._as)
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        assert ready.wait(_START_SECONDS), "".join(self.log)
        assert self._process.poll() is None, "".join(self.log)

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if _READY in line:
                    ready.set()
        ready.set()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def pids(self) -> list[int]:
        """Of the server and of all its processes."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: it ends its clients' sessions and itself."""
        assert self._process is not None
        assert self._reader is not None
        self._process.send_signal(how)
        self._process.wait(_START_SECONDS)
        self._reader.join(_START_SECONDS)
        self._process = None

    def close(self) -> None:
        """Stop it and remove its data. What it logged is evidence."""
        if self._process is not None:
            self.stop()
        evidence.keep("log", "".join(self.log))
        shutil.rmtree(self.directory)

    def url(self, database: str, options: str = "sslmode=disable", host: str = "127.0.0.1") -> str:
        return f"postgresql://{_ROLE}:{self.password}@{host}:{self.port}/{database}?{options}"

    async def connect(self, database: str = "postgres") -> Any:
        """A connection of one's own, beside the store's."""
        return await asyncpg.connect(self.url(database), timeout=_START_SECONDS)

    async def execute(self, statement: str, database: str = "postgres") -> None:
        connection = await self.connect(database)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def new_database(self) -> str:
        name = f"t{secrets.token_hex(6)}"
        asyncio.run(self.execute(f"CREATE DATABASE {name}"))
        return name


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database of either kind."""

    settings: StoreSettings
    server: PostgresServer | None = None
    name: str = ""

    @property
    def file(self) -> Path:
        """Of an SQLite database."""
        assert self.server is None
        return self.settings.key_file.with_name("pointsman.db")

    def patient(self, seconds: float) -> "Database":
        """The same one, opened by somebody with that much patience."""
        return replace(self, settings=replace(self.settings, busy_seconds=seconds))

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[SqlStore]:
        store = await open_store(self.settings)
        try:
            yield store
        finally:
            await store.close()


def sqlite_database(directory: Path) -> Database:
    """Patient enough for a busy machine."""
    data = directory / "data"
    return Database(StoreSettings(file_url(data / "pointsman.db"), data / "credentials.key", busy_seconds=30))


def postgresql_database(server: PostgresServer, directory: Path) -> Database:
    """As patient."""
    name = server.new_database()
    settings = StoreSettings(server.url(name), directory / "data" / "credentials.key", busy_seconds=30)
    return Database(settings, server, name)


KINDS: Sequence[str] = ("sqlite", "postgresql")

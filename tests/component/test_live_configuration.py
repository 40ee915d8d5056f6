"""Reading again when something else is wrong: a database that is away, or what nobody has foreseen."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.gateway_records import FileRecords
from pointsman.config.reload import NOT_READ, Source, load
from pointsman.core.control_errors import StoreUnavailable
from pointsman.gateway.file_layer import FileLayer
from pointsman.gateway.live_configuration import LiveConfiguration
from pointsman.proxy.background import running as beside
from tests.support.databases import sqlite_database

TEXT = "providers: [{name: a, type: mock, model: NAME}]\nroutes: [{name: r, candidates: [a]}]\n"


class Failing(FileLayer):
    """Its store does what a test says, once."""

    failure: Exception | None = None

    async def conflicts(self, records: FileRecords) -> tuple[str, ...]:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return await super().conflicts(records)


class Running:
    """A configuration that is followed; `hang_up` returns what is said of a SIGHUP until a text is said."""

    def __init__(self, file: Path, layer: Failing, said: asyncio.Queue[str], applied: list[str]) -> None:
        self.file, self.layer, self._said, self.applied = file, layer, said, applied
        self.refused: Exception | None = None
        self.signal = asyncio.Event()

    async def apply(self) -> None:
        self.applied.append(self.layer.records.providers[0].config["MODEL"])
        if self.refused is not None:
            raise self.refused

    async def hang_up(self, model: str, until: str) -> list[str]:
        self.file.write_text(TEXT.replace("NAME", model))
        self.signal.set()
        lines = [""]
        async with asyncio.timeout(20):
            while until not in lines[-1]:
                lines.append(await self._said.get())
        return lines[1:]


def run(directory: Path, script: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
    async def followed() -> None:
        file = directory / "pointsman.yaml"
        file.write_text(TEXT)
        loaded = load(Source(file, {"HOME": str(directory)}, {}))
        async with sqlite_database(directory).opened() as store:
            said: asyncio.Queue[str] = asyncio.Queue()
            running = Running(file, Failing(store, loaded.settings.records), said, [])
            configuration = LiveConfiguration(loaded, running.layer, said.put_nowait)
            async with beside(configuration.follow(running.signal, running.apply), "configuration"):
                await script(running)

    asyncio.run(followed())


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (StoreUnavailable("the database is away"), "the database is away"),
        (RuntimeError("unforeseen"), "internal error: RuntimeError while the configuration was read again"),
    ],
)
def test_what_fails_in_between_changes_nothing_and_the_next_signal_is_heeded(
    failure: Exception, text: str, tmp_path: Path
) -> None:
    async def script(running: Running) -> None:
        running.layer.failure = failure
        told = await running.hang_up("m1", NOT_READ)
        assert told[-1 if isinstance(failure, RuntimeError) else -2].startswith(text)
        assert running.layer.records.providers[0].config["MODEL"] == "NAME"
        assert running.applied == []
        await running.hang_up("m1", "read again: provider a changed")
        assert running.applied == ["m1"]

    run(tmp_path, script)


def test_a_database_that_goes_when_the_records_are_replaced_does_not_undo_that(tmp_path: Path) -> None:
    async def script(running: Running) -> None:
        running.refused = StoreUnavailable("the database is away")
        await running.hang_up("m1", "read again: provider a changed")
        assert running.layer.records.providers[0].config["MODEL"] == "m1"

    run(tmp_path, script)

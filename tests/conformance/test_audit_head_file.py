"""The head of the audit record beside the gateway's other files: never ahead of the record, and kept as evidence."""

import stat
from pathlib import Path

import pytest

from pointsman.core.audit import AuditDraft
from pointsman.core.chain import ChainHead
from pointsman.gateway.audit_head_file import FILE_NAME, AuditHeadFile
from pointsman.store.sql import SqlStore
from tests.support.databases import Database


async def write(store: SqlStore, number: int = 1, subject: str = "s") -> ChainHead:
    return await store.append_audit([AuditDraft(1.5, "default", "admin", "a.b", subject)] * number)


async def checked(store: SqlStore, directory: Path, said: list[str]) -> AuditHeadFile:
    file = AuditHeadFile(directory, said.append)
    async with store.read() as reader:
        await file.check(reader)
    return file


async def test_a_noted_head_is_read_back_by_the_next_gateway(sqlite: Database, tmp_path: Path) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        file = await checked(store, tmp_path, said)
        assert (file.read(), file.kept()) == (None, None)
        for _ in range(3):
            head = await write(store)
            file.note(head)
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        again = await checked(store, tmp_path, said)
        assert again.kept() == (head, str(tmp_path / FILE_NAME))
        # Killed before it could note that: an older head is true, too.
        await write(store)
        assert (await checked(store, tmp_path, said)).read() == head
    assert said == []
    assert [path.name for path in tmp_path.iterdir() if "audit" in path.name] == [FILE_NAME]


@pytest.mark.guarantee("W4")
async def test_a_record_that_was_cut_is_told_at_the_start_and_the_file_stays(sqlite: Database, tmp_path: Path) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        head = await write(store, 6)
        (await checked(store, tmp_path, said)).note(head)
        async with store.write() as writer:
            for statement in (
                "DELETE FROM audit WHERE sequence > 4",
                "UPDATE audit_head SET sequence = 4, digest = (SELECT digest FROM audit WHERE sequence = 4)",
            ):
                await writer._connection.exec_driver_sql(statement)
        file = await checked(store, tmp_path, said)
        assert len(said) == 1
        assert "does not hold entry 6" in said[0]
        # It grows past the old end, and the evidence is still there.
        for _ in range(3):
            file.note(await write(store, subject="another"))
        assert file.read() == head
        assert len(said) == 1
        await checked(store, tmp_path, said)
        assert said == [said[0]] * 2


@pytest.mark.guarantee("W4")
async def test_a_record_that_gets_shorter_while_the_gateway_runs_is_told_at_the_next_change(
    sqlite: Database, tmp_path: Path
) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        file = await checked(store, tmp_path, said)
        head = await write(store, 6)
        file.note(head)
        file.note(ChainHead(5, b"x" * 32))
        file.note(ChainHead(7, b"x" * 32))
        assert file.read() == head
    assert len(said) == 1
    assert "has got shorter than entry 6" in said[0]


@pytest.mark.parametrize("content", [b"", b"6\n", b"\xff\xfe", b"x" * 5000])
async def test_what_is_no_head_is_told_and_stays(sqlite: Database, tmp_path: Path, content: bytes) -> None:
    said: list[str] = []
    (tmp_path / FILE_NAME).write_bytes(content)
    async with sqlite.opened() as store:
        file = await checked(store, tmp_path, said)
        file.note(await write(store))
    assert len(said) == 1
    assert "cannot be read (ValueError)" in said[0]
    assert (tmp_path / FILE_NAME).read_bytes() == content


async def test_a_file_that_cannot_be_written_is_told_once_and_written_as_soon_as_it_can_be(
    sqlite: Database, tmp_path: Path
) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        file = await checked(store, tmp_path / "away", said)
        file.note(await write(store))
        file.note(await write(store))
        assert len(said) == 1
        assert "cannot be written (No such file or directory); it is tried again with each entry" in said[0]
        (tmp_path / "away").mkdir()
        head = await write(store)
        file.note(head)
        assert file.read() == head
        file.note(await write(store))
    assert said[1:] == [f"audit: {file.path} is written again"]

"""Where a private file may lie: nowhere that others could put another in its place."""

import os
from pathlib import Path

import pytest

from pointsman.runner.private_file import NoSuchFile, PrivateFileError, read_private, write_private


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720, 0o702, 0o777])
@pytest.mark.guarantee("N9")
def test_a_directory_that_others_may_write_to_holds_no_file_to_be_trusted(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "mine" / "allowlist.json"
    write_private(path, b"{}")
    path.parent.chmod(mode)
    with pytest.raises(PrivateFileError, match="others may write there; chmod go-w"):
        read_private(path)
    with pytest.raises(PrivateFileError, match="others may write there; chmod go-w"):
        write_private(path, b"[]")
    path.parent.chmod(0o700)
    assert read_private(path) == b"{}"
    assert [each.name for each in path.parent.iterdir()] == ["allowlist.json"]


def test_it_is_told_before_there_is_a_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PrivateFileError) as told:
        read_private(tmp_path / "runner.json")
    assert not isinstance(told.value, NoSuchFile)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("mode", [0o1777, 0o755, 0o750])
def test_a_directory_where_others_replace_nothing_will_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "shared" / "runner.json"
    write_private(path, b"{}")
    path.parent.chmod(mode)
    assert read_private(path) == b"{}"
    write_private(path, b"[]")
    assert read_private(path) == b"[]"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
def test_a_directory_of_another_user_will_not(tmp_path: Path) -> None:
    path = tmp_path / "theirs" / "runner.json"
    write_private(path, b"{}")
    os.chown(path.parent, 12345, 12345)
    with pytest.raises(PrivateFileError, match="belongs to another user"):
        read_private(path)


def test_where_there_is_no_directory_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile):
        read_private(tmp_path / "none" / "runner.json")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PrivateFileError) as told:
        read_private(tmp_path / "file" / "runner.json")
    assert not isinstance(told.value, NoSuchFile)

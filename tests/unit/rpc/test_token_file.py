"""A token's file: whose it must be, and what may be in it."""

import os
from pathlib import Path

import pytest

from pointsman.rpc.token_file import LARGEST_TOKEN_FILE, TokenFileError, read_token

TOKEN = "pst_0123456789abcdef"


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("data", [TOKEN, f"{TOKEN}\n", f"  {TOKEN}\r\n\n"])
def test_a_token_is_the_one_line_without_white_space_around_it(tmp_path: Path, data: str) -> None:
    assert read_token(written(tmp_path / "token", data.encode())).reveal() == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o620, 0o601])
def test_a_file_in_which_others_have_rights_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    path = written(tmp_path / "token", TOKEN.encode(), mode)
    with pytest.raises(TokenFileError, match=f"chmod 600 {path}"):
        read_token(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    assert read_token(written(tmp_path / "token", TOKEN.encode(), mode)).reveal() == TOKEN


def test_a_link_is_followed_and_its_target_judged(tmp_path: Path) -> None:
    target = written(tmp_path / "target", TOKEN.encode())
    link = tmp_path / "link"
    link.symlink_to(target)
    assert read_token(link).reveal() == TOKEN
    target.chmod(0o644)
    with pytest.raises(TokenFileError):
        read_token(link)


@pytest.mark.parametrize("data", [b"", b" \n", b"two words", b"two\nlines", b"caf\xc3\xa9", b"a\0b", b"a\rb"])
def test_what_is_not_one_token_is_refused_and_not_repeated(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TokenFileError) as refusal:
        read_token(written(tmp_path / "token", data))
    assert data.decode("latin-1").strip() in ("",) or data.decode("latin-1").strip() not in str(refusal.value)


@pytest.mark.parametrize("size", [LARGEST_TOKEN_FILE, LARGEST_TOKEN_FILE + 1])
def test_a_file_may_have_the_limit(tmp_path: Path, size: int) -> None:
    path = written(tmp_path / "token", b"a" * size)
    if size > LARGEST_TOKEN_FILE:
        with pytest.raises(TokenFileError, match="bytes"):
            read_token(path)
    else:
        assert len(read_token(path).reveal()) == size


def test_a_missing_file_a_directory_a_pipe_and_a_bad_path_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe", "a\0b"):
        with pytest.raises(TokenFileError, match="token file"):
            read_token(path)

"""The admin token's file: made once, for one user, and trusted only while it has stayed so."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pointsman.gateway.admin_token import LONGEST, SHORTEST, load_or_make_admin_token
from pointsman.gateway.cannot_start import CannotStart

NOBODY = 65534
KEY = "what-an-operator-wrote-into-it-0123"
"""No canary: the search for those finds it in every file."""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def written(directory: Path, text: str, permissions: int = 0o600) -> Path:
    path = directory / "admin.token"
    path.write_text(text)
    path.chmod(permissions)
    return path


def refusal(directory: Path) -> str:
    with pytest.raises(CannotStart) as caught:
        load_or_make_admin_token(directory)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.guarantee("K8")
def test_it_is_made_at_the_first_start_and_found_at_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    previous = os.umask(0)
    try:
        token = load_or_make_admin_token(directory)
    finally:
        os.umask(previous)
    assert (mode(directory), mode(directory / "admin.token")) == (0o700, 0o600)
    assert (directory / "admin.token").read_text() == token.reveal() + "\n"
    assert load_or_make_admin_token(directory) == token
    assert os.listdir(directory) == ["admin.token"]


@pytest.mark.guarantee("K8")
def test_every_directory_gets_its_own_of_256_bits(tmp_path: Path) -> None:
    tokens = {load_or_make_admin_token(tmp_path / str(number)).reveal() for number in range(50)}
    assert len(tokens) == 50
    assert {len(each) for each in tokens} == {43}  # 32 bytes in base64


def test_it_is_what_the_source_of_randomness_gave(tmp_path: Path) -> None:
    assert load_or_make_admin_token(tmp_path, lambda: "r" * 40).reveal() == "r" * 40


@pytest.mark.parametrize("attempt", range(3))
def test_gateways_that_start_at_once_agree_on_one(tmp_path: Path, attempt: int) -> None:
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda _: load_or_make_admin_token(tmp_path / "data"), range(64)))
    assert len(tokens) == 1
    assert os.listdir(tmp_path / "data") == ["admin.token"]


@pytest.mark.guarantee("K8")
@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o620, 0o601, 0o666, 0o610])
def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path, permissions: int) -> None:
    path = written(tmp_path, KEY * 2, permissions)
    assert refusal(tmp_path) == (
        f"{path} is open to other users; remove it if they may have read it, else chmod 600 it"
    )


@pytest.mark.parametrize("permissions", [0o600, 0o400, 0o700])
def test_the_owners_own_rights_are_the_owners(tmp_path: Path, permissions: int) -> None:
    written(tmp_path, "t" * 40, permissions)
    assert load_or_make_admin_token(tmp_path).reveal() == "t" * 40


@pytest.mark.guarantee("K8")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this test gives a file away: run it as root, as CI does"
    os.chown(written(tmp_path, KEY * 2), NOBODY, NOBODY)
    told = refusal(tmp_path)
    assert "belongs to another user" in told
    assert "remove" not in told  # it may be that of a gateway which runs


def test_a_link_a_directory_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    path.symlink_to(written(tmp_path / "..", "t" * 40))
    assert "symbolic" in refusal(tmp_path)
    path.unlink()
    path.mkdir(0o700)
    assert "not a regular file" in refusal(tmp_path)
    path.rmdir()
    os.mkfifo(path, 0o600)
    assert "not a regular file" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("t" * (SHORTEST - 1), False),
        ("t" * SHORTEST, True),
        ("t" * SHORTEST + "\n", True),
        ("t" * SHORTEST + "\r\n", True),
        ("t" * SHORTEST + "\n\n", False),
        ("t" * SHORTEST + "\nmore", False),
        (" " + "t" * SHORTEST, False),
        ("é" * SHORTEST, False),
        ("t" * LONGEST, True),
        ("t" * (LONGEST + 1), False),
        ("", False),
        (f"{KEY} {KEY}", False),
    ],
)
def test_it_is_one_line_of_a_sensible_length(tmp_path: Path, text: str, is_good: bool) -> None:
    written(tmp_path, text)
    if is_good:
        assert load_or_make_admin_token(tmp_path).reveal() == text.strip()
    else:
        assert "is not one line of 32 characters or more, without spaces; remove it" in refusal(tmp_path)


def test_a_directory_that_everybody_may_change_is_refused(tmp_path: Path) -> None:
    for permissions in (0o777, 0o1777, 0o702):
        tmp_path.chmod(permissions)
        assert "every user of this machine may change it; chmod 700 it" in refusal(tmp_path)
    tmp_path.chmod(0o755)
    assert load_or_make_admin_token(tmp_path)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file" / "data").endswith(f"{tmp_path}/file: file exists; check it, or name another")
    assert refusal(tmp_path / "file").startswith(f"data_dir {tmp_path}/file: ")

"""The operator's last word: what is not exactly approved is refused, and all of it when the file is not right."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.runner.allowlist import MOST_MODELS, Allowlist, ApprovedModel, approve, clear, read_allowlist
from pointsman.runner.private_file import LARGEST, PrivateFileError
from pointsman.wire.runner_frames import START, ModelRequest

_URL = "http://localhost:11434/v1"


def model(number: int = 1, url: str = _URL) -> ApprovedModel:
    return ApprovedModel(f"id-{number}", parse_runner_endpoint(url), f"tiny-{number}")


def asked(model_id: str = "id-1", url: str = _URL, body: bytes = b'{"model":"tiny-1"}') -> ModelRequest:
    return ModelRequest("r", START, model_id, url, msgspec.Raw(body))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "new" / "allowlist.json"
    approve(path, model())
    return path


def answer(path: Path, request: ModelRequest | None = None) -> bool:
    return Allowlist(path, lambda _: None).allows(request or asked())


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (asked(), True),
        (asked(url="HTTP://LOCALHOST:011434/v1/"), True),
        (asked("id-2"), False),
        (asked(url="http://127.0.0.1:11434/v1"), False),
        (asked(url="http://localhost:11435/v1"), False),
        (asked(url="http://localhost:11434/v1?x"), False),
        (asked(url="http://localhost:11434/v2"), False),
        (asked(url="http://models.example:11434/v1"), False),
        (asked(body=b'{"model":"tiny-2"}'), False),
        (asked(body=b'{"model":"tiny-1","model":"tiny-2"}'), False),
        (asked(body=b'{"model":"tiny-1","Model":"tiny-2"}'), False),
        (asked(body=b"{}"), False),
    ],
)
@pytest.mark.guarantee("S8")
def test_id_address_and_model_must_all_match(path: Path, request_: ModelRequest, allowed: bool) -> None:
    assert answer(path, request_) is allowed


@pytest.mark.guarantee("N7", "S8")
def test_what_matches_in_parts_of_two_entries_is_not_approved(path: Path) -> None:
    approve(path, model(2, "http://localhost:8080/v1"))
    assert answer(path, asked("id-2", "http://localhost:8080/v1", b'{"model":"tiny-2"}'))
    assert not answer(path, asked("id-2", body=b'{"model":"tiny-2"}'))
    assert not answer(path, asked("id-1", "http://localhost:8080/v1"))


@pytest.mark.guarantee("N9")
def test_the_file_is_for_its_owner_alone_and_so_is_a_new_directory(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["allowlist.json"]


def _edit(path: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _as_link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


_TAMPERED: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_text(""),
    "not UTF-8": lambda path: path.write_bytes(path.read_bytes().replace(b"tiny-1", b"\xff\xfe")),
    "another version": lambda path: _edit(path, lambda document: document.update(version=2)),
    "an unknown key": lambda path: _edit(path, lambda document: document.update(allow_all=True)),
    "a key missing": lambda path: _edit(path, lambda document: document["models"][0].pop("base_url")),
    "another type": lambda path: _edit(path, lambda document: document["models"][0].update(model_id=1)),
    "another machine": lambda path: _edit(
        path, lambda document: document["models"].append({**document["models"][0], "base_url": "http://10.0.0.1:1/v1"})
    ),
    "an id twice": lambda path: _edit(path, lambda document: document["models"].append(document["models"][0])),
    "readable by the group": lambda path: path.chmod(0o640),
    "writable by others": lambda path: path.chmod(0o602),
    "a link": _as_link,
    "a directory": _as_directory,
    "a pipe": _as_pipe,
    "too large": lambda path: path.write_bytes(path.read_bytes() + b" " * LARGEST),
}


@pytest.mark.parametrize("how", _TAMPERED)
@pytest.mark.guarantee("N9", "S8")
def test_a_file_that_is_not_right_refuses_everything_and_says_so_once(path: Path, how: str) -> None:
    _TAMPERED[how](path)
    said: list[str] = []
    allowlist = Allowlist(path, said.append)
    assert not allowlist.allows(asked())
    assert not allowlist.allows(asked())
    assert len(said) == 1
    assert str(path) in said[0]
    with pytest.raises(PrivateFileError):
        approve(path, model(2))  # nor is it mended by what could be an attack's last step


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_refuses_everything(path: Path) -> None:
    os.chown(path, 65534, 65534)
    assert not answer(path)


@pytest.mark.guarantee("S8")
def test_a_changed_file_counts_for_the_next_request_without_a_restart(path: Path) -> None:
    allowlist = Allowlist(path, lambda _: None)
    assert allowlist.allows(asked())
    clear(path)
    assert not allowlist.allows(asked())
    approve(path, model())
    assert allowlist.allows(asked())
    path.unlink()
    assert not allowlist.allows(asked())


def test_a_link_that_stands_where_the_file_goes_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "allowlist.json"
    target.write_text("mine")
    path.symlink_to(target)
    clear(path)
    assert target.read_text() == "mine"
    assert not path.is_symlink()
    assert read_allowlist(path) == ()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(PrivateFileError):
        approve(path / "below", model(2))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["allowlist.json"]


def test_approving_again_replaces_what_was_known_of_the_model(path: Path) -> None:
    again = ApprovedModel("id-9", model().endpoint, model().model_identifier)
    approve(path, again)
    assert read_allowlist(path) == (again,)
    approve(path, ApprovedModel("id-9", model().endpoint, "tiny-3"))
    assert [each.model_identifier for each in read_allowlist(path)] == ["tiny-3"]


def test_one_runner_approves_64_models_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "allowlist.json"
    for number in range(MOST_MODELS):
        approve(path, model(number))
    assert len(read_allowlist(path)) == MOST_MODELS == 64
    with pytest.raises(PrivateFileError, match="64 models"):
        approve(path, model(MOST_MODELS))
    assert len(read_allowlist(path)) == MOST_MODELS
    _edit(path, lambda document: document["models"].append({**document["models"][0], "model_id": "one more"}))
    assert not answer(path)

"""What a stranger may have put in the doctor's way: pipes for files, and directories that clients would read."""

import asyncio
import os
from pathlib import Path

import pytest

from pointsman.core.candidate import INFERENCE_LOCAL, Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.secret import Secret
from pointsman.sandbox.doctor.diagnose import Task, diagnose
from pointsman.sandbox.doctor.door_facts import ca_files
from pointsman.sandbox.doctor.regular_file import read_regular
from pointsman.sandbox.doctor.trial_place import trial_place
from pointsman.sandbox.environment import PLACEHOLDER_KEY
from tests.support.canary import KEY
from tests.support.descriptors import open_at


@pytest.mark.parametrize(("most", "kept"), [(4, b"1234"), (5, b"12345"), (6, b"12345")])
def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path, most: int, kept: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(str(file), most) == kept


def test_what_is_no_regular_file_is_an_error_at_once_and_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), str(tmp_path), "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(path, 9)
    assert open_at(tmp_path, Path("/dev/zero")) == []


def test_a_certificate_variable_that_names_a_pipe_is_told_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "ca.pem"
    os.mkfifo(pipe)
    told = next(each for each in ca_files({"SSL_CERT_FILE": str(pipe)}, None) if each.variable)
    assert told.error == "not a regular file"


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, ...]:
    made = [tmp_path / name for name in ("home/tmp", "var", "shm")]
    for each in made:
        each.mkdir(parents=True)
    return tuple(str(each) for each in made)


@pytest.mark.parametrize("here", ["var", "home/tm", "home/tmp/below", "nowhere"])
def test_trials_have_the_usual_place_when_that_does_not_lie_below_the_operators(
    tmp_path: Path, places: tuple[str, ...], here: str
) -> None:
    assert trial_place(str(tmp_path / here), places) == places[0]


def test_trials_have_another_place_when_the_usual_one_lies_below_the_operators(
    tmp_path: Path, places: tuple[str, ...]
) -> None:
    (tmp_path / "link").symlink_to("home")
    for here in (tmp_path / "home", tmp_path / "home" / "tmp", tmp_path / "link"):
        assert trial_place(str(here), places) == places[1]
    (tmp_path / "var").rmdir()
    assert trial_place(str(tmp_path / "home"), places) == places[2]


def test_a_place_whose_name_would_be_two_in_a_list_is_not_taken(tmp_path: Path, places: tuple[str, ...]) -> None:
    colon = tmp_path / "a:b"
    colon.mkdir()
    assert trial_place("/nowhere", (str(colon), *places)) == places[0]


def test_the_usual_place_is_taken_when_all_lie_below_the_operators(places: tuple[str, ...]) -> None:
    assert trial_place("/", places) == places[0]


def test_also_inside_no_program_is_given_a_key_of_the_routes(tmp_path: Path) -> None:
    spy, record = tmp_path / "curl", tmp_path / "record"
    spy.write_text(f"#!/bin/sh\n/usr/bin/env >>{record}\necho curl 8.1.2\n")
    spy.chmod(0o755)
    endpoint = Endpoint("mock", "doctor", 0, "")
    candidate = Candidate(INFERENCE_LOCAL, endpoint, "m", tuple(InferenceProtocol), api_key=Secret(KEY))
    environ = {
        "PATH": str(tmp_path),
        "PROVIDER_ONE": "other-value",
        "COPY": f"see {KEY}",
        "OPENAI_API_KEY": PLACEHOLDER_KEY,
    }
    variables = ("PROVIDER_ONE", "OPENAI_API_KEY")
    task = Task(environ, "/", inside=True, only=("curl",), candidates=(candidate,), key_variables=variables)
    asyncio.run(diagnose(task, lambda done, count: None))
    seen = record.read_text()
    assert f"OPENAI_API_KEY={PLACEHOLDER_KEY}\n" in seen, "what opens nothing would be missed"
    assert KEY not in seen
    assert "PROVIDER_ONE" not in seen

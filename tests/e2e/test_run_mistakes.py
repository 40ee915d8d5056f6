"""What people mistype at `sandbox run`, and what they are told."""

import os
from pathlib import Path

import pytest

from tests.support.processes import POINTSMAN, run_to_end

MOCK = "routes: [{route: inference.local, endpoint: 'mock://x', model: m, protocols: [openai_responses]}]\n"


@pytest.fixture
def routes(tmp_path: Path) -> str:
    path = tmp_path / "routes.yaml"
    path.write_text(MOCK)
    return str(path)


@pytest.mark.parametrize(("slip", "meant"), [("--memroy", "--memory"), ("--inference-route", "--inference-routes")])
def test_a_mistyped_option_is_an_error_that_names_the_nearest(routes: str, slip: str, meant: str) -> None:
    done = run_to_end([POINTSMAN, "sandbox", "run", "--inference-routes", routes, slip, "1G", "--", "true"])
    assert done.returncode == 2
    assert slip in done.stderr
    assert meant in done.stderr


def test_options_of_the_command_need_no_dashes_before_them(routes: str) -> None:
    done = run_to_end([POINTSMAN, "sandbox", "run", "--inference-routes", routes, "sh", "-c", "exit 7"], cwd="/")
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize(
    ("place", "reason"), [("absent/x", "no such file or directory"), (".", "is a directory"), ("link", "symbolic link")]
)
def test_a_log_that_cannot_be_opened_is_told_with_its_option(
    routes: str, tmp_path: Path, place: str, reason: str
) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    log = os.path.join(tmp_path, place)
    for command in (["run", "--inference-routes", routes], ["proxy", "--inference-routes", routes, "--listen", ":0"]):
        rest = ["--", "true"] if command[0] == "run" else ["--ca-dir", str(tmp_path / "ca"), "--listen", "127.0.0.1:0"]
        done = run_to_end([POINTSMAN, "sandbox", *command, "--ocsf-log", log, *rest])
        assert done.returncode == (125 if command[0] == "run" else 1)
        assert f"--ocsf-log {log}: " in done.stderr
        assert reason in done.stderr
        assert "Errno" not in done.stderr


def test_a_log_that_the_command_can_change_draws_a_warning(routes: str, tmp_path: Path) -> None:
    run = [POINTSMAN, "sandbox", "run", "--inference-routes", routes]
    work, logs = tmp_path / "work", tmp_path / "logs"
    work.mkdir(mode=0o777)
    logs.mkdir()
    for place, warned in ((work / "x", True), (logs / "x", False)):
        done = run_to_end([*run, "--ocsf-log", str(place), "--", "true"], cwd=work)
        assert ("keep it out of what COMMAND may change" in done.stderr) is warned


def test_a_port_in_use_is_told_with_its_option(routes: str, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        rest = ["--ca-dir", str(tmp_path / "ca"), "--listen", address]
        done = run_to_end([POINTSMAN, "sandbox", "proxy", "--inference-routes", routes, *rest])
    assert done.stderr.strip().endswith(f"--listen {address}: address already in use; choose another")

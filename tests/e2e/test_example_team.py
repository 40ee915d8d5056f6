"""The example of a team's key as it stands: its scripts set up a real gateway, and tell of an altered record."""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.dialects import Say
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.scripted_model import ScriptedModel
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "team"
SHELL = {"type": "function", "function": {"name": "bash"}}


def script(gateway: ServingGateway, place: Path, name: str, url: str) -> "CompletedProcess[str]":
    environ = {
        "PATH": f"{Path(POINTSMAN).parent}:{os.environ['PATH']}",
        "POINTSMAN_GATEWAY": gateway.url,
        "POINTSMAN_DATA_DIR": str(gateway.directory),
        "OPENAI_API_KEY": "sk-of-the-shell",  # as the page says; whoever may look at its processes sees it
        "OPENAI_BASE_URL": url,
    }
    return run_to_end(["sh", name], environ=environ, cwd=place, seconds=100)


def refused(gateway: ServingGateway, key: str, model: str, **more: object) -> str:
    """The code of the refusal; empty when there was none."""
    with gateway.connect() as client:
        gateway.send(client, {"model": model, "messages": [{"role": "user", "content": "Hello"}], **more}, key)
        answer = client.answer()
    return "" if answer.status == 200 else str(json.loads(answer.body)["error"]["code"])


@pytest.mark.timeout(240)
def test_the_scripts_of_a_team_set_it_up_report_on_it_and_notice_an_altered_record(tmp_path: Path) -> None:
    place = tmp_path / "team"
    shutil.copytree(EXAMPLE, place)
    with (
        ScriptedModel(lambda asked: Say("hello")) as model,
        serving_gateway(tmp_path / "data", "--config", str(place / "pointsman.yaml")) as gateway,
    ):
        done = script(gateway, place, "set_up.sh", model.url)
        assert (done.returncode, "Policy 1 is enforced, with 3 rules" in done.stdout) == (0, True), done.stderr
        key = (place / "team-ci.key").read_text().strip()
        wait_until(lambda: refused(gateway, key, "fast", tools=[SHELL]) == "policy_blocked")
        assert refused(gateway, key, "careful", max_tokens=8001) == "policy_blocked"
        names = ("fast", "careful", "gpt-4o")
        assert [refused(gateway, key, name, max_tokens=100) for name in names] == ["", "", "model_not_found"]
        wait_until(lambda: len(gateway.usage()) >= 5)
        day = script(gateway, place, "daily.sh", "")
        assert day.returncode == 0, (day.stdout, day.stderr)
        assert "team-ci  gpt-4o" in day.stdout
        assert "The record is whole: " in day.stdout
        assert "The receipts of account team are whole: " in day.stdout
        [head] = (place / "heads.txt").read_text().splitlines()
        assert script(gateway, place, "daily.sh", "").returncode == 0  # and the head of the day before is in it
        with contextlib.closing(sqlite3.connect(gateway.directory / "pointsman.db", timeout=20)) as database:
            database.execute("UPDATE audit SET after = replace(after, '50.00', '500.00')")
            database.commit()
        day = script(gateway, place, "daily.sh", "")
        assert (day.returncode, " was altered" in day.stdout) == (1, True), (day.stdout, day.stderr)
        assert (place / "heads.txt").read_text().splitlines()[0] == head

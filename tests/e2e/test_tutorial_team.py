"""The tutorial of a team does what it says: its commands are run as they stand, on a gateway that answers for real.

Numbers, dates and digests differ from run to run, and so does what is printed while something comes into force.
"""

import os
import re
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, run_to_end

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "team.md"
_BLOCK = re.compile(r"^```(sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shape(text: str) -> str:
    """Words alone: numbers, moments and digests are `N`, and columns may be of another width."""
    without = re.sub(r"\d[\d.:TZ-]*", "N", re.sub(r"\b[0-9a-f]{64}\b", "N", text))
    return re.sub(r"[ \t]+", " ", without)


@pytest.mark.timeout(240)
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    commands = "".join(text for language, text in blocks if language)
    printed = [text for language, text in blocks if not language]
    assert (commands.count("\nuntil "), commands.count("sh ask.sh"), len(printed)) == (8, 10, 9)
    data, grpc = free_ports(2)  # the default ones may be somebody's
    environ = {
        "PATH": f"{Path(POINTSMAN).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "POINTSMAN_GATEWAY": f"http://127.0.0.1:{grpc}",
        "POINTSMAN_LISTEN__DATA": f"127.0.0.1:{data}",
        "POINTSMAN_LISTEN__CONTROL": "127.0.0.1:0",
        "POINTSMAN_LISTEN__GRPC": f"127.0.0.1:{grpc}",
    }
    place = tmp_path / "tutorial"
    place.mkdir()
    script = "set -eu\ntrap 'kill %1' ERR\n" + commands.replace("127.0.0.1:8780", f"127.0.0.1:{data}") + "wait\n"
    # `timeout` ends the gateway with all the rest, should one of them stand still.
    done = run_to_end(["timeout", "200", "bash", "-c", script], environ=environ, cwd=place, seconds=220)
    log = (place / "gateway.log").read_text()
    assert done.returncode == 0, (done.stdout, done.stderr, log)
    said, at = shape(done.stdout), 0
    for text in printed:
        assert shape(text) in said[at:], (text, done.stdout, done.stderr)
        at = said.index(shape(text), at) + len(shape(text))
    assert "Traceback" not in done.stderr + log
    assert (place / "team.key").read_text().strip() not in log

"""The tutorial of chains does what it says: its commands are run as they stand, its printed answers are what comes."""

import os
import re
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, run_to_end

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "chain.md"
_BLOCK = re.compile(r"^```(sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(180)
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    commands = "".join(text for language, text in blocks if language)
    printed = [text for language, text in blocks if not language]
    assert (commands.count("pointsman gateway"), commands.count("sh ask.sh"), len(printed)) == (3, 5, 5)
    port = free_ports(1)[0]  # the default one may be somebody's
    environ = {
        "PATH": f"{Path(POINTSMAN).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "POINTSMAN_LISTEN__DATA": f"127.0.0.1:{port}",
        "POINTSMAN_LISTEN__CONTROL": "127.0.0.1:0",
        "POINTSMAN_LISTEN__GRPC": "127.0.0.1:0",
    }
    place = tmp_path / "tutorial"
    place.mkdir()
    script = "set -eu\ntrap 'kill %1' ERR\n" + commands.replace("127.0.0.1:8780", f"127.0.0.1:{port}") + "wait\n"
    # `timeout` ends the gateway with all the rest, should one of them stand still.
    done = run_to_end(["timeout", "150", "bash", "-c", script], environ=environ, cwd=place, seconds=170)
    log = (place / "gateway.log").read_text()
    assert done.returncode == 0, (done.stdout, done.stderr, log)
    at = 0
    for text in printed:
        assert text in done.stdout[at:], (text, done.stdout, done.stderr)
        at = done.stdout.index(text, at) + len(text)
    assert "Traceback" not in done.stderr + log

"""The commands of "share a model" run as they stand: of the README, then of the how-to, at one gateway."""

import os
import re
from pathlib import Path

import pytest

from tests.support.model_server import EVENT_STREAM, Visit
from tests.support.operated_gateway import operated_gateway
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.shared_model import served

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STARTED = """trap 'jobs -p | xargs -r kill' EXIT
pointsman runner start 2> runner.log &
until grep -s ready runner.log; do sleep 0.1; done"""
CLIENT = """
curl -sN "$DATA/v1/chat/completions" -H 'content-type: application/json' \\
  -d '{"model": "qwen3-8b", "messages": [{"role": "user", "content": "Hello"}], "stream": true}'
kill -INT %1
wait %1
"""


async def answer(visit: Visit) -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"well"}}]}\n\ndata: [DONE]\n\n'
    await visit.send(EVENT_STREAM + data)


def commands(page: str, heading: str, end: str) -> str:
    """The shell of a section and of what follows it up to another; the README's other sections are other tests'."""
    text = (ROOT / page).read_text().partition(heading)[2]
    blocks = _BLOCK.findall(text.partition(end)[0])
    return "".join(block for language, block in blocks if language in ("", "sh"))


@pytest.mark.timeout(180)
def test_the_commands_that_share_a_model_run_as_they_stand(tmp_path: Path) -> None:
    readme = commands("README.md", "## A model on somebody's machine", "\n## ").replace(
        ".venv/bin/pointsman", "pointsman"
    )
    howto = commands("docs/howto/share-a-local-model.md", "## Begin", "\n## Watch it").replace(
        "create ada", "create ada-2"
    )
    assert (readme.count("pointsman "), howto.count("pointsman ")) == (3, 11)
    readme = readme.replace("pointsman runner start", "")  # one line of a runner at a time
    script = readme + howto.replace("pointsman runner start", STARTED) + CLIENT
    with operated_gateway(tmp_path / "state") as gateway, served(answer, "qwen3:8b") as server:
        control = f"http://127.0.0.1:{gateway.ports['control']}"
        for shown in ("http://127.0.0.1:8781", "https://gateway.example:8781"):
            script = script.replace(shown, control)
        script = script.replace("http://localhost:9000/v1", server.url)
        environ = {
            "PATH": f"{Path(POINTSMAN).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "POINTSMAN_GATEWAY": gateway.url,
            "POINTSMAN_DATA_DIR": str(gateway.data_directory),
            "DATA": f"http://{gateway.data}",
        }
        done = run_to_end(["bash", "-eumc", script], environ=environ, cwd=tmp_path, seconds=150)
    assert done.returncode == 0, (done.stdout, done.stderr)
    [runner] = {
        line.split("(")[1][:32] for line in done.stdout.splitlines() if line.startswith("Registered the runner")
    }
    assert f"  Id: {runner}\n" in done.stdout
    for text in (
        "clients call it qwen3-8b\n",
        "  Connected: yes\n",
        "data: [DONE]\n",
        "which is connected, once: no other attempt",
    ):
        assert text in done.stdout, (text, done.stdout)
    assert "Problem" not in done.stdout

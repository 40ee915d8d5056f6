"""The commands of the how-tos of chains and of keys do what the pages say, in the order in which they stand there.

Providers are the built-in practice one; nothing else is changed.
"""

import os
import re
from pathlib import Path

import pytest

from tests.support.llama_server import model_path
from tests.support.operated_gateway import operated_gateway
from tests.support.processes import POINTSMAN, run_to_end

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_URL = re.compile(r"https://[a-z.]+/[a-z0-9/]+")
ASKS = """
curl -s "$DATA/v1/models" -H "authorization: Bearer $key" | jq -r '.data[].id'
pointsman key list --account team -o json | jq -r '.[].name'
"""


KEY = "sk-of-nobody-at-all-0123456789"
"""No canary: a shell that runs an operator's commands has the key in its environment."""


def commands(page: str, *marks: str) -> str:
    """Those blocks of a page that hold one of the marks."""
    blocks = _BLOCK.findall((HOWTO / page).read_text())
    return "".join(block for language, block in blocks if not language and any(mark in block for mark in marks))


@pytest.mark.timeout(180)
def test_the_commands_run_as_they_stand(tmp_path: Path) -> None:
    script = commands("chain-providers.md", "provider create", "inference set")
    script += commands("give-out-keys.md", "key create", "key list")
    script = _URL.sub("mock://practice", script)
    assert script.count("pointsman ") == 16
    (tmp_path / "secrets").mkdir()
    for name in ("groq", "gemini"):
        (tmp_path / "secrets" / f"{name}_api_key").write_text(f"{KEY}\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.gguf").symlink_to(model_path())
    with operated_gateway(tmp_path / "state") as gateway:
        [data] = re.findall(r"data=(\S+)", gateway.lines[-1])
        environ = {
            "PATH": f"{Path(POINTSMAN).parent}:{os.environ['PATH']}",
            "POINTSMAN_GATEWAY": gateway.url,
            "POINTSMAN_DATA_DIR": str(gateway.data_directory),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": "mock://practice",
            "DATA": f"http://{data}",
        }
        # `work` would be asked at OpenAI's own address.
        script = script.replace("--from-existing", "--from-existing --config OPENAI_BASE_URL=mock://practice")
        done = run_to_end(["bash", "-euc", script + ASKS], environ=environ, cwd=tmp_path, seconds=150)
    assert done.returncode == 0, (done.stdout, done.stderr)
    for text in ("Route fast created", "Fallback: local", "Leads to: route fast", "Revoked the key laptop"):
        assert text in done.stdout, (text, done.stdout)
    valid, models, of_team = done.stdout.splitlines()[-5:-2], done.stdout.splitlines()[-2], done.stdout.splitlines()[-1]
    assert (sorted(valid), models, of_team) == (["build", "ci", "trial"], "fast", "team-ci")
    assert KEY not in done.stdout + done.stderr

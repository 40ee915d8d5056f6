"""The configurations that the how-tos of chains show are read without a problem, as the page has them."""

import re
from pathlib import Path

import pytest
import yaml

from pointsman.config.settings import load_settings

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def configurations(page: str) -> list[str]:
    """Its blocks; one that has routes alone stands for a change of the first."""
    blocks = [yaml.safe_load(block) for block in _BLOCK.findall((HOWTO / page).read_text())]
    return [yaml.safe_dump({**blocks[0], **block}) for block in blocks]


@pytest.mark.parametrize(("page", "count"), [("chain-providers.md", 1), ("run-beside-ollama.md", 2)])
def test_a_shown_configuration_is_valid(page: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.gguf").write_bytes(b"GGUF")
    texts = configurations(page)
    assert len(texts) == count
    for text in texts:
        (tmp_path / "pointsman.yaml").write_text(text)
        settings = load_settings(tmp_path / "pointsman.yaml", {"HOME": str(tmp_path)}, {})
        assert len(settings.records.routes) == 1
        assert [each for each in settings.warnings if "it has no fallback" not in each] == []

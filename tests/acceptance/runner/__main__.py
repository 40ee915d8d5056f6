"""`make acceptance-runner`: runners' models through a gateway of several processes, on real parts, and what breaks.

Two data workers, one API process, nats-server, PostgreSQL; two runners, each beside a real llama.cpp server, each in a
network namespace of its own. Prints a transcript; exits with 1 when a step failed, with 2 when it cannot be run here.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_INSIDE = "--inside"
_ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""Whatever it starts ends with it, and its ports are nobody else's."""


def _enter() -> int:
    if os.geteuid() != 0:
        print("acceptance-runner: network namespaces need root; next: run it with sudo", file=sys.stderr)
        return 2
    tried = subprocess.run([*_ALONE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        print(f"acceptance-runner: no namespaces here: {tried.stderr.strip()}", file=sys.stderr)
        return 2
    command = [*_ALONE, sys.executable, "-m", "tests.acceptance.runner", _INSIDE, *sys.argv[1:]]
    return subprocess.run(command, check=False).returncode


def _run() -> int:
    from tests.acceptance.runner.steps import run
    from tests.acceptance.runner.transcript import Transcript

    transcript = Transcript(
        "Runners' models on real parts: 1 API process, 2 data workers, nats-server, PostgreSQL;\n"
        "2 runners, each beside llama.cpp, each in a network namespace of its own."
    )
    with tempfile.TemporaryDirectory(prefix="pointsman-acceptance-") as directory:
        run(transcript, Path(directory))
    return transcript.end()


if __name__ == "__main__":
    sys.exit(_run() if _INSIDE in sys.argv else _enter())

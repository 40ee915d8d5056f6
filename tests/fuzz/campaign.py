"""The coverage-guided campaign: every target for a while, with progress and a line of findings (`make fuzz`).

Corpora and findings are kept below `build/fuzz`, so the next campaign goes on from what this one has learnt.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.properties import PROPERTIES
from tests.fuzz.seeds import SEEDS, WORDS

_STATUS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)(?: corp: (\d+))?")
_LONGEST_INPUT = 600
_LONGEST_RUN_SECONDS = 20
_MEMORY_MB = 1024


class Progress:
    """The last status line of one target."""

    def __init__(self) -> None:
        self.runs = self.coverage = self.features = self.inputs = 0

    def read(self, line: str) -> bool:
        """Take a line of the fuzzer; whether it was a status."""
        match = _STATUS.match(line)
        if match is None:
            return False
        self.runs, self.coverage, self.features = int(match[1]), int(match[2]), int(match[3])
        self.inputs = int(match[4] or self.inputs)
        return True

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.coverage} edges, {self.features} features, {self.inputs} inputs kept"


def dictionary(words: tuple[bytes, ...]) -> str:
    """The words in libFuzzer's notation."""
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words)


def fuzz(name: str, seconds: int, directory: Path) -> bool:
    """Run one target; whether its property held."""
    corpus, findings = directory / name / "corpus", directory / name / "findings"
    for each in (corpus, findings):
        each.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = directory / name / "words"
    words.write_text(dictionary(WORDS[name]))
    options = [f"-max_total_time={seconds}", f"-max_len={_LONGEST_INPUT}", f"-timeout={_LONGEST_RUN_SECONDS}"]
    options += [f"-rss_limit_mb={_MEMORY_MB}", f"-artifact_prefix={findings}/", f"-dict={words}"]
    command = [sys.executable, "-m", "tests.fuzz", name, *options, str(corpus)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    progress, tail = Progress(), [""][:0]
    on_terminal = sys.stderr.isatty()
    with process.stdout as lines:
        for line in lines:
            if not progress.read(line):
                tail = [*tail[-60:], line]
            elif on_terminal:
                print(f"\r\033[Kfuzz: {name}: {progress}", end="", file=sys.stderr, flush=True)
    if on_terminal:
        print("\r\033[K", end="", file=sys.stderr)
    held = process.wait() == 0
    print(f"fuzz: {name}: {progress}: {'no finding' if held else 'BROKEN'}", flush=True)
    if not held:
        print("".join(tail), end="")
        print("".join(line + "\n" for line in reproduction(name, tail)), end="", flush=True)
    return held


def reproduction(name: str, output: list[str]) -> list[str]:
    """What to do about a finding, by the fuzzer's last lines; empty when it ended for another reason."""
    match = re.search(r"Test unit written to (\S+)", "".join(output))
    if match is None:
        return []
    return [
        f"fuzz: again: {os.path.relpath(sys.executable)} -m tests.fuzz {name} --again {match[1]}",
        "fuzz: next: mend it, and keep the input as a fixed test in tests/unit/wire/test_properties.py",
    ]


def main() -> int:
    """Fuzz the named targets, or all; 1 when one broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("target", nargs="*", help=f"one of: {', '.join(PROPERTIES)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--directory", type=Path, default=Path("build/fuzz"), help="corpora and findings")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.target if name not in PROPERTIES]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(PROPERTIES)}")
    # All of them, also when one breaks: each finding is worth knowing.
    results = [fuzz(name, arguments.seconds, arguments.directory) for name in arguments.target or PROPERTIES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

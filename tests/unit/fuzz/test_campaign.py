"""What the fuzzing campaign says of itself. The fuzzer is installed by `make fuzz` alone, so it is not needed here."""

import subprocess
import sys
from pathlib import Path

from tests.fuzz.campaign import Progress, dictionary, reproduction


def test_progress_is_read_from_the_fuzzers_status_lines() -> None:
    progress = Progress()
    assert progress.read("#8248\tNEW    cov: 26 ft: 86 corp: 17/396b lim: 63 exec/s: 8248 rss: 43Mb\n")
    assert progress.read("#29371\tDONE   cov: 27 ft: 133 corp: 29/2493b lim: 233 exec/s: 2670 rss: 43Mb\n")
    assert not progress.read("INFO: Seed: 1181874104\n")
    assert str(progress) == "29371 runs, 27 edges, 133 features, 29 inputs kept"


def test_words_are_written_in_the_fuzzers_notation() -> None:
    assert dictionary((b'"a\\', b"\r\n")) == '"\\x22\\x61\\x5c"\n"\\x0d\\x0a"\n'


def test_a_finding_comes_with_the_command_that_repeats_it() -> None:
    output = ["x\n", "artifact_prefix='f/'; Test unit written to f/crash-12ab\n"]
    assert reproduction("json", output)[0].endswith("-m tests.fuzz json --again f/crash-12ab")
    assert reproduction("json", ["x\n"]) == []


def test_an_input_can_be_tried_again_without_the_fuzzer(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"0\r\n\r\n")
    command = [sys.executable, "-m", "tests.fuzz", "chunked", "--again", str(file)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the property holds" in done.stdout

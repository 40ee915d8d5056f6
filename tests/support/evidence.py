"""What the tests' processes wrote and looked like, kept for the search that ends the run (tests/canaries).

A directory of plain files, one per kind, that any process of the run may append to. scripts/test.sh makes one for all
the processes that it starts; where pytest is started without it, each run has its own.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_VARIABLE = "POINTSMAN_TEST_EVIDENCE"
MOST_AT_ONCE = 1 << 18
"""Bytes kept of one piece of evidence. A stream of 200 MB repeats itself."""


def directory() -> Path:
    """Where this run's evidence is; made at first use."""
    if _VARIABLE not in os.environ:
        path = tempfile.mkdtemp(prefix="pointsman-evidence-")
        os.environ[_VARIABLE] = path
        atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(os.environ[_VARIABLE])


def keep(kind: str, data: bytes | str) -> None:
    """Add to the evidence of that kind: `log`, `event`, `cli`, `client`, `output`, `process`, `places`."""
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")
    if not data:
        return
    descriptor = os.open(directory() / kind, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data[:MOST_AT_ONCE] + b"\n")
    finally:
        os.close(descriptor)

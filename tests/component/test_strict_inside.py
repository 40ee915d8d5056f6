"""Everything that a sandboxed command can open, searched for what it must not find. Needs root, as CI has."""

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pointsman.sandbox.authority import CertificateAuthority
from tests.support.processes import POINTSMAN

# The key travels into the sandbox back to front, or the search would find itself.
SEARCH = r"""
import json, os, stat, sys, time
key, since = sys.argv[1][::-1].encode(), float(sys.argv[2])
needles = [key, key[3:15], b"PRIVATE" + b" KEY"]
found, opened, processes = [], 0, []

def search(path, limit=1 << 22):
    global opened
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(limit)
    except (OSError, ValueError):
        return
    opened += 1
    if any(needle in data for needle in needles):
        found.append(path)

def search_memory(pid):
    global opened
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in open(f"/proc/{pid}/maps"):
                start, end = (int(each, 16) for each in line.split()[0].split("-"))
                try:
                    memory.seek(start)
                    data = memory.read(min(end - start, 1 << 26))
                except (OSError, ValueError, OverflowError):
                    continue
                opened += 1
                if any(needle in data for needle in needles):
                    found.append(f"/proc/{pid}/mem")
    except OSError:
        pass

for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
    processes.append(pid)
    for name in ("environ", "cmdline", "maps", "mountinfo", "status", "stack", "auxv"):
        search(f"/proc/{pid}/{name}")
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        descriptors = []
    for descriptor in descriptors:
        path = f"/proc/{pid}/fd/{descriptor}"
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                search(path)
        except OSError:
            pass
    if pid != os.getpid():  # this one holds what it looks for
        search_memory(pid)

# On disk: whatever was written or renamed since the sandbox began, except among installed programs.
programs = {"/proc", "/sys", "/usr", "/opt", "/boot", "/nix", "/snap"}
for folder, folders, names in os.walk("/"):
    folders[:] = [
        name for name in folders
        if os.path.join(folder, name) not in programs and name not in (".venv", ".git", "site-packages", "node_modules")
    ]
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and max(status.st_mtime, status.st_ctime) >= since:
            search(path)
print(json.dumps({"found": sorted(set(found)), "opened": opened, "processes": processes, "uid": os.getuid()}))
"""


@pytest.mark.guarantee("T11", "K1")
def test_a_sandboxed_command_finds_no_key_in_files_processes_or_memory(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("this test makes a network namespace: run it as root, as CI does")
    key = "sk-" + secrets.token_urlsafe(24)
    since = time.time() - 1
    routes = tmp_path / "routes.yaml"
    routes.write_text(
        "routes:\n"
        f"  - {{route: inference.local, endpoint: 'http://127.0.0.1:9/v1', model: m, protocols: [model_discovery], "
        f"api_key: {key}}}\n"
        "  - {route: inference.local, endpoint: 'http://127.0.0.1:9/v1', model: m, protocols: [openai_responses], "
        "api_key_env: THE_KEY}\n"
    )
    routes.chmod(0o600)
    # Something that is readable and holds the key: a search that misses it proves nothing.
    open_to_all = Path("/srv") / f"search-control-{secrets.token_hex(4)}"
    open_to_all.write_text(f"x{key}x")
    open_to_all.chmod(0o644)
    command = [POINTSMAN, "sandbox", "run", "--inference-routes", str(routes), "--user", "nobody", "--"]
    try:
        finished = subprocess.run(
            [*command, sys.executable, "-c", SEARCH, key[::-1], str(since)],
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
            cwd="/",
            env={**os.environ, "THE_KEY": key, "COPY_OF_IT": key},
        )
    finally:
        open_to_all.unlink()
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result["found"] == [str(open_to_all)]
    assert result["uid"] == 65534
    assert result["opened"] > 5
    assert max(result["processes"]) < 10  # the sandbox's own, and none of the host's


@pytest.mark.guarantee("T11")
def test_what_the_sandbox_writes_for_its_clients_holds_certificates_and_no_private_key(tmp_path: Path) -> None:
    files = CertificateAuthority(time.time).write(tmp_path, {})
    for path in tmp_path.iterdir():
        assert b"PRIVATE" not in path.read_bytes()
        assert path.stat().st_mode & 0o022 == 0
    assert sorted(tmp_path.iterdir()) == sorted([files.authority, files.bundle])

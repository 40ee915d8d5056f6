"""Installs the agents at the versions and hashes of the lock files, into a directory that git ignores."""

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = Path(__file__).parent
DIRECTORY = ROOT / ".cache" / "acceptance"
_PYTHON_AGENTS = ("llm", "aider")


def install() -> Path:
    """Install what is not there yet, at its lock's versions; the directory. Raises CalledProcessError."""
    for name in _PYTHON_AGENTS:
        lock = LOCKS / f"{name}.txt"
        if not _is_done(name, lock):
            _install_python(DIRECTORY / name, lock)
            _say_done(name, lock)
    lock = LOCKS / "npm" / "package-lock.json"
    if not _is_done("npm", lock):
        _install_npm(DIRECTORY / "npm", lock)
        _say_done("npm", lock)
    return DIRECTORY


def _is_done(name: str, lock: Path) -> bool:
    """Whether what is there came from this lock."""
    copy = DIRECTORY / f"{name}.done"
    if copy.exists() and filecmp.cmp(lock, copy, shallow=False):
        return True
    shutil.rmtree(DIRECTORY / name, ignore_errors=True)
    (DIRECTORY / name).mkdir(parents=True)
    print(f"acceptance: installing {name}", flush=True)
    return False


def _say_done(name: str, lock: Path) -> None:
    shutil.copy(lock, DIRECTORY / f"{name}.done")


def _install_python(directory: Path, lock: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    pip = [str(directory / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(lock)], check=True)


def _install_npm(directory: Path, lock: Path) -> None:
    for file in (lock.with_name("package.json"), lock):
        shutil.copy(file, directory)
    npm = [str(ROOT / "scripts" / "npm.sh"), "--prefix", str(directory)]
    # Two of them finish their installation by a script of theirs; package.json says which. Not `ci`: it wants every
    # other platform's optional package in the lock too, and not every registry has them all.
    subprocess.run([*npm, "install", "--no-audit", "--no-fund", "--loglevel=error"], check=True)

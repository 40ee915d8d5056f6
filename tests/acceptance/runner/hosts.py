"""Machines, as far as the network goes: each a namespace of its own, with one cable to the namespace of this process.

Owns the namespaces, the cables and cutting them. What runs on a host is not known here.
"""

import contextlib
import subprocess
from collections.abc import Iterator

GATEWAY = "10.86.0.1"
"""Of this process's namespace, for every host; no machine outside has to do with it."""


class Host:
    """One machine."""

    def __init__(self, number: int) -> None:
        """Raises AssertionError with what `ip` said."""
        self.name = f"host-{number}"
        self._cable = f"host{number}"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec sleep infinity"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"\n", "no network namespace could be made"
        near, far = f"10.86.{number}.1", f"10.86.{number}.2"
        peer = ["peer", "name", "cable", "netns", str(self._holder.pid)]
        run("ip", "link", "add", self._cable, "type", "veth", *peer)
        run("ip", "address", "add", f"{near}/24", "dev", self._cable)
        run("ip", "link", "set", self._cable, "up")
        run(*self.command("ip", "address", "add", f"{far}/24", "dev", "cable"))
        self.join()

    def command(self, *argv: str) -> list[str]:
        """What runs that on this host."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--", *argv]

    def cut(self) -> None:
        """Pull the cable at this end: nobody is told that a connection has ended."""
        run(*self.command("ip", "link", "set", "cable", "down"))

    def join(self) -> None:
        """Plug it in."""
        run(*self.command("ip", "link", "set", "cable", "up"))
        run(*self.command("ip", "route", "replace", f"{GATEWAY}/32", "dev", "cable"))

    def close(self) -> None:
        """The namespace goes with the last process in it."""
        self._holder.kill()
        self._holder.wait(10)
        if self._holder.stdout is not None:
            self._holder.stdout.close()


def run(*argv: str) -> None:
    """Raises AssertionError with what it said."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """That many, and this process's namespace reachable from each at GATEWAY."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{GATEWAY}/32", "dev", "lo")
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(1, count + 1):
            made.append(Host(number))
            stack.callback(made[-1].close)
        yield made

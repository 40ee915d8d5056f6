"""What the sandbox can see of the file system, as `visibility` and `hosts` have planned it; made with root."""

import os
from typing import Any

from .kernel import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    set_read_only,
)


def make_view(orders: dict[str, Any]) -> None:
    """Mount everything, in a mount namespace of our own."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    # Opened first: once a cover lies over them they have no path. O_PATH asks for no right on the thing itself.
    private = orders["private"]
    sources = {path: hold(source) for path, source, _ in orders["view"] if source is not None}
    hosts, blank = hold(os.path.join(private, "hosts")), hold(os.path.join(private, "blank"))
    for path, _, binds in orders["view"]:
        cover(path, sources.get(path), binds)
    close(orders["writable"], list(sources))
    kernel_views()
    if orders["hosts"] is not None:
        put_over(hosts, "/etc/hosts")
    for path in orders["locked"]:
        mount(path, path, None, MS_BIND)
        mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path in orders["blank"]:
        put_over(blank, path)
    for descriptor in (*sources.values(), hosts, blank):
        os.close(descriptor)


def close(writable: list[str], rooms: list[str]) -> None:
    """Make everything read-only but what the command may change, whatever its user may change on the host.

    Its user may own what root runs: this program, for one.
    """
    for path in writable:
        mount(path, path, None, MS_BIND | MS_REC)
    set_read_only("/", read_only=True, recursive=True)
    for path in (*rooms, *writable):
        set_read_only(path, read_only=False, recursive=False)


def hold(path: str) -> int:
    """A descriptor of a path that may vanish."""
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def cover(path: str, source: int | None, binds: list[list[Any]]) -> None:
    """Put an empty read-only directory, or `source`, over `path`, and into it the things of `binds`.

    `binds` is a list of [path, writable].
    """
    held = [(target, writable, hold(target)) for target, writable in binds]
    if source is None:
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    else:
        mount(f"/proc/self/fd/{source}", path, None, MS_BIND)
        mount("none", path, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV)
    for target, writable, descriptor in held:
        bind(descriptor, target, writable=writable)
        os.close(descriptor)
    if source is None:
        mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def bind(descriptor: int, target: str, *, writable: bool) -> None:
    """Show what `descriptor` holds at `target`, which is made when it is not there."""
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    # What is mounted below a read-only tree stays outside: a remount would not reach it.
    mount(source, target, None, MS_BIND | (MS_REC if writable else 0))
    if not writable:
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def put_over(descriptor: int, path: str) -> None:
    """Put a file over another one, read-only; the host's own is not touched."""
    mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND)
    mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def kernel_views() -> None:
    """Fresh /proc and /sys: the host's would show its processes and its network interfaces."""
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    cgroup = "/sys/fs/cgroup"
    # Kept, because runtimes size their heaps and thread pools by it.
    held = hold(cgroup) if os.path.isdir(cgroup) else None
    if os.path.isdir("/sys"):
        mount("sysfs", "/sys", "sysfs", quiet | MS_RDONLY)
    if held is not None:
        if os.path.isdir(cgroup):
            mount(f"/proc/self/fd/{held}", cgroup, None, MS_BIND | MS_REC)
            # Its user may own groups there, with processes of the host in them.
            set_read_only(cgroup, read_only=True, recursive=True)
        os.close(held)
    mount("proc", "/proc", "proc", quiet)

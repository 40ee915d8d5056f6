"""What bubblewrap is told, so that it makes without root what `launcher` makes with it.

bwrap makes the namespaces and the view, then becomes `launcher`'s init, which binds the listeners, leaves its
privileges and starts the command. Pure.
"""

import os
from typing import TYPE_CHECKING

from pointsman.sandbox.visibility import is_below

if TYPE_CHECKING:
    from pointsman.sandbox.orders import View

_NAMESPACES = (
    # Root inside, until init gives that up: whoever is not cannot mount devpts, and bwrap would make a second user
    # namespace, from which the first one's port 443 cannot be bound.
    *("--unshare-user", "--uid", "0", "--gid", "0"),
    *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--as-pid-1", "--die-with-parent"),
    # The second is for init's own user namespace, in which the command has the operator's number.
    *("--cap-add", "CAP_NET_BIND_SERVICE", "--cap-add", "CAP_SETFCAP"),
)
_SYS = ("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")
_KERNEL_VIEWS = (
    *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/sys"),
    # By these runtimes size their heaps and thread pools. The rest of /sys shows the host's devices and interfaces.
    *(word for path in _SYS for word in ("--ro-bind-try", path, path)),
    *("--remount-ro", "/sys"),
)


def bubblewrap_arguments(view: "View", private: str, hosts: str = "/etc/hosts") -> tuple[str, ...]:
    """bwrap's arguments, up to the program. `private` is the sandbox's own directory, with its hosts file."""
    words = [*_NAMESPACES, "--ro-bind", "/", "/"]
    for path in view.writable:
        if not any(is_below(path, cover.path) for cover in view.covers):
            words += ["--bind", path, path]
    words += _KERNEL_VIEWS
    for cover in view.covers:
        words += ["--tmpfs", cover.path] if cover.source is None else ["--bind", cover.source, cover.path]
        for bind in cover.binds:
            words += ["--bind" if bind.writable else "--ro-bind", bind.path, bind.path]
        if cover.source is None:
            words += ["--remount-ro", cover.path]
    for path in view.locked:
        words += ["--ro-bind", path, path]
    for path in view.blank:
        words += ["--ro-bind", os.path.join(private, "blank"), path]
    if os.path.exists(hosts):
        words += ["--ro-bind", os.path.join(private, "hosts"), os.path.realpath(hosts)]
    return tuple(words)

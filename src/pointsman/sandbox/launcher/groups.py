"""The control groups that bound the command's memory and processor time, as `control_groups` made them."""

import os
from contextlib import suppress
from typing import Any


def join(orders: dict[str, Any]) -> None:
    """Put this process, and with it whatever it starts, into the groups."""
    for group in orders["groups"]:
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write("0")


def leave(orders: dict[str, Any]) -> None:
    """Remove the groups when the supervisor, which otherwise does, is dead."""
    if os.getppid() != orders["supervisor"]:
        for group in orders["groups"]:
            with suppress(OSError):
                os.rmdir(group)
                os.rmdir(os.path.dirname(group))

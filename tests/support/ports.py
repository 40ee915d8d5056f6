"""Ports of loopback that nobody listens on, for processes that have to be told one."""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """That many, all different. Somebody may take one before it is used."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]

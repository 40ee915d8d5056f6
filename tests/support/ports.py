"""Ports of loopback that nobody listens on, for processes that have to be told one."""

import contextlib
import random
import socket

_LOWEST, _BEHIND = 12_000, 32_000
"""Not of those that the system gives to connections that go out, or to whoever asks for any: one of them may be taken
before it is used."""


def free_ports(count: int) -> list[int]:
    """That many, all different. Another process of the tests may choose the same one, once in many thousand times."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(range(_LOWEST, _BEHIND), 200):
            if len(found) == count:
                return found
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    raise AssertionError(f"no {count} ports of loopback are free")

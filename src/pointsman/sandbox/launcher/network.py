"""The sandbox's network: loopback, and the listeners on it."""

import fcntl
import socket
import struct

from .kernel import IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS

BACKLOG = 1024


def loopback_up() -> None:
    """A new network namespace has `lo`, but down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def listen(port: int) -> socket.socket:
    """A listener on loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener

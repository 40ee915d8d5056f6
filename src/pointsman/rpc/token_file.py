"""The file that holds a token for a gateway: read when it is needed, never kept open."""

import os
import stat

from pointsman.core.gateway_address import GatewayFileError
from pointsman.core.secret import Secret

LARGEST_TOKEN_FILE = 8 * 1024
"""Bytes; a header of 8 KiB is the most that gRPC servers take."""


class TokenFileError(GatewayFileError):
    """No token can be had from the file. The text names it, says why and what to do; never what is in it."""


def read_token(path: str | os.PathLike[str]) -> Secret:
    """The one line of the file, trimmed. Raises TokenFileError.

    A symbolic link is followed, as mounted secrets are links; what is judged is the file that it leads to. Others than
    its owner may have no rights in it.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            data = file.read(LARGEST_TOKEN_FILE + 1) if stat.S_ISREG(status.st_mode) else b""
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "is not a path").lower()
        raise TokenFileError(f"token file {name}: {reason}; check the path and its rights") from None
    if not stat.S_ISREG(status.st_mode):
        raise TokenFileError(f"token file {name}: is not a regular file; write the token into one")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise TokenFileError(f"token file {name}: others may use it; chmod 600 {name}")
    return _token(name, data)


def _open_at_once(name: str, flags: int) -> int:
    """Opening a pipe would wait for its writer."""
    return os.open(name, flags | os.O_NONBLOCK)


def _token(name: str, data: bytes) -> Secret:
    if len(data) > LARGEST_TOKEN_FILE:
        raise TokenFileError(f"token file {name}: has over {LARGEST_TOKEN_FILE} bytes; it should hold one token only")
    text = data.decode("latin-1").strip()
    if not text:
        raise TokenFileError(f"token file {name}: is empty; 'pointsman sandbox token create NAME' makes a token")
    if not all("!" <= character <= "~" for character in text):
        raise TokenFileError(f"token file {name}: is not one line with one token; write nothing else into it")
    return Secret(text)

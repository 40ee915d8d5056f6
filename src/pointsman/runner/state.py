"""Who this runner is: its id, its token and its gateway, in runner.json of the user's configuration directory."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.secret import Secret
from pointsman.runner.gateway_address import read_control_address
from pointsman.runner.private_file import NoSuchFile, PrivateFileError, read_private, write_private

FILE_NAME = "runner.json"
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LONGEST_TOKEN = 4096


@dataclass(frozen=True, slots=True)
class RunnerState:
    """What a runner keeps. The user's key is not among it."""

    runner_id: str
    name: str
    token: Secret
    gateway: GatewayAddress


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runner_id: str
    name: str
    token: str
    gateway: str
    gateway_ca: str = ""


_DECODER = msgspec.json.Decoder(_Document, strict=True)


def default_config_directory(environ: Mapping[str, str]) -> Path:
    """The user's (XDG Base Directory Specification). Raises RuntimeError where the user has no home."""
    given = environ.get("XDG_CONFIG_HOME", "")
    if given.startswith("/"):
        return Path(given) / "pointsman"
    home = environ.get("HOME", "")
    return (Path(home) if home.startswith("/") else Path.home()) / ".config" / "pointsman"


def checked_identity(runner_id: str, token: str) -> Secret:
    """The token. Raises ValueError for what a gateway must not say: both go into the head of a request."""
    secret = Secret(token)
    if not _ID.fullmatch(runner_id) or not token or not secret.fits_a_header(_LONGEST_TOKEN):
        raise ValueError("has an id or token that is none")
    return secret


def read_state(directory: Path) -> RunnerState:
    """Raises PrivateFileError; NoSuchFile when this machine is not registered."""
    path = directory / FILE_NAME
    try:
        document = _DECODER.decode(read_private(path))
        address = read_control_address(document.gateway, document.gateway_ca)
        token = checked_identity(document.runner_id, document.token)
    except NoSuchFile:
        raise NoSuchFile(f"{path}: no such file; 'pointsman runner register' makes it") from None
    except (msgspec.DecodeError, UnicodeError, ValueError):
        # What the library says could repeat what is in it.
        raise PrivateFileError(f"{path}: is not a runner's; move it away, then 'pointsman runner register'") from None
    return RunnerState(document.runner_id, document.name, token, address)


def write_state(directory: Path, state: RunnerState) -> None:
    """Raises PrivateFileError."""
    gateway = state.gateway
    document = _Document(state.runner_id, state.name, state.token.reveal(), gateway.url, gateway.ca_file)
    write_private(directory / FILE_NAME, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")

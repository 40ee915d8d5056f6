"""The private /etc/hosts of a sandbox, which leads clients that ignore proxy variables to the door. Pure."""

from pointsman.core.candidate import INFERENCE_LOCAL

DOOR_LINE = f"127.0.0.1 {INFERENCE_LOCAL}"
"""IPv4 alone: a name with one address of one family is what every resolver answers for both. `::1` would only be a
second address to try, and Java as well as Node take what there is."""

_LOOPBACK = "127.0.0.1 localhost"


def hosts_file(host: str) -> str:
    """The text of the host's hosts file with the door's name added, and taken from whomever else it named."""
    lines = [_without_door(line) for line in host.splitlines()]
    if not any("localhost" in _fields(line)[1:] for line in lines):
        lines.insert(0, _LOOPBACK)
    return "".join(f"{line}\n" for line in (*lines, DOOR_LINE) if line is not None)


def _fields(line: str | None) -> list[str]:
    return (line or "").partition("#")[0].split()


def _without_door(line: str) -> str | None:
    """`line` as it was unless it names the door; None when it named nothing else."""
    address, *names = _fields(line) or [""]
    others = [name for name in names if name.lower().rstrip(".") != INFERENCE_LOCAL]
    if len(others) == len(names):
        return line
    return " ".join((address, *others)) if others else None

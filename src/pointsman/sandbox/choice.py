"""Which isolation a command gets. Pure; what it is made of is in `launcher` and `bubblewrap`."""

from collections.abc import Mapping
from enum import StrEnum

from pointsman.sandbox.child import CannotStart

UNPROTECTED_WARNING = """\
pointsman: WARNING: --isolation none: this command is NOT isolated. Nothing stops it from
pointsman: WARNING:   - reaching any host and any local service without the proxy (it need only ignore the variables)
pointsman: WARNING:   - reading and changing every file that you can, keys, tokens and shell start-up files included
pointsman: WARNING:   - seeing, tracing and stopping your other processes, this proxy and the keys in it included
pointsman: WARNING:   - typing into this terminal
pointsman: WARNING: Only its environment was cleaned of keys. Run it with --isolation auto to isolate it.
"""

BUBBLEWRAP_PATH = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where bwrap is looked for. Not in PATH: an entry of it may be a directory that an earlier command wrote to."""

USER_NAMESPACE_SETTINGS = {
    "kernel/unprivileged_userns_clone": "0",  # Debian's and Arch's
    "user/max_user_namespaces": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",  # Ubuntu's
}
"""Below /proc/sys: what forbids namespaces without root, and the value that does."""

_MENDS = {
    "kernel/unprivileged_userns_clone": "sysctl -w kernel.unprivileged_userns_clone=1",
    "user/max_user_namespaces": "sysctl -w user.max_user_namespaces=15000",
    "kernel/apparmor_restrict_unprivileged_userns": (
        "an AppArmor profile for bwrap with the rule 'userns,' (docs/howto/run-without-root.md has it)"
    ),
}

_OTHERWISE = "or run it with sudo"


class Isolation(StrEnum):
    """How a command is kept from everything but the proxy."""

    AUTO = "auto"
    NETNS = "netns"
    BWRAP = "bwrap"
    NONE = "none"


class IsolationRefused(CannotStart):
    """The isolation asked for is not possible here."""


def choose_isolation(requested: Isolation, *, is_root: bool, bubblewrap: str | None) -> Isolation:
    """Never AUTO, and NONE only for who asked for it. `bubblewrap` is the path of bwrap, when there is one.

    Raises IsolationRefused.
    """
    if requested is Isolation.NONE:
        return requested
    if requested is Isolation.AUTO:
        requested = Isolation.NETNS if is_root else Isolation.BWRAP
    if requested is Isolation.NETNS and not is_root:
        raise IsolationRefused(
            "--isolation netns needs root: run it with sudo (the command still runs as you), or use --isolation bwrap"
        )
    if requested is Isolation.BWRAP and bubblewrap is None:
        raise IsolationRefused(
            f"isolation without root needs bubblewrap: apt-get install bubblewrap, {_OTHERWISE}, or give up isolation "
            "with --isolation none"
        )
    return requested


def forbidding_setting(settings: Mapping[str, str]) -> tuple[str, str] | None:
    """What keeps ordinary users from making namespaces, as `name = value`, and what it takes to change that.

    `settings` are the values of USER_NAMESPACE_SETTINGS that exist here. None: the kernel does not forbid it.
    """
    for name, forbidding in USER_NAMESPACE_SETTINGS.items():
        if settings.get(name) == forbidding:
            return f"{name.replace('/', '.')} = {forbidding}", _MENDS[name]
    return None


def explain_bubblewrap(said: str, settings: Mapping[str, str]) -> str:
    """One line for the operator when bwrap could not make the sandbox.

    `said` is what it wrote, `settings` the values of USER_NAMESPACE_SETTINGS that exist here.
    """
    forbidden = forbidding_setting(settings)
    if forbidden is not None:
        setting, mend = forbidden
        return f"this kernel forbids user namespaces to everyone but root ({setting}): it takes {mend}, {_OTHERWISE}"
    reason = said.strip().splitlines()[-1].removeprefix("bwrap: ") if said.strip() else "it did not say why"
    return f"bubblewrap cannot make a sandbox here ({reason}): {_OTHERWISE.removeprefix('or ')}"

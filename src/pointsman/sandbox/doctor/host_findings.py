"""Whether isolation works on this host, and what is missing. Pure."""

import os

from pointsman.sandbox.child import Failure
from pointsman.sandbox.doctor.environment_findings import Finding, State
from pointsman.sandbox.host import HostFacts, possible_isolations


def judge_host(facts: HostFacts) -> tuple[Finding, ...]:
    """What this host lets a sandbox do."""
    possible = possible_isolations(facts)
    return (_as_root(facts, possible), _without_root(facts, possible), _limits(facts))


def _as_root(facts: HostFacts, possible: tuple[str, ...]) -> Finding:
    subject = "isolation as root"
    if "netns" in possible:
        return Finding(subject, State.OK, "network, mount and process namespaces can be made")
    if not facts.is_root:
        state = State.NOTE if possible else State.MEND
        return Finding(subject, state, "not tried: this is not root", "sudo pointsman doctor")
    reason = Failure("namespaces", facts.namespaces_error, "").explain("", "", "")
    what, _, mend = reason.partition(": it takes ")
    return Finding(subject, State.NOTE if possible else State.MEND, what, f"give it {mend}" if mend else "")


def _without_root(facts: HostFacts, possible: tuple[str, ...]) -> Finding:
    subject = "isolation without root"
    if "bwrap" in possible:
        return Finding(subject, State.OK, f"{facts.bubblewrap} can make namespaces")
    if facts.closed_by:
        name, _, value = facts.closed_by[0].partition("=")
        opened = "28633" if name.endswith("namespaces") else str(1 - int(value))
        mend = f"sudo sysctl -w {name}={opened}"
        return Finding(subject, State.NOTE, f"{', '.join(facts.closed_by)} forbids user namespaces", mend)
    if not facts.bubblewrap:
        mend = "sudo apt-get install bubblewrap"
        return Finding(subject, State.NOTE, "bubblewrap is not installed", mend)
    reason = facts.bubblewrap_error
    if facts.user_namespaces_error:
        reason += f" (user namespaces: {os.strerror(facts.user_namespaces_error)})"
    return Finding(subject, State.NOTE, f"bubblewrap cannot isolate here: {reason}", "use sudo")


def _limits(facts: HostFacts) -> Finding:
    subject = "limits"
    if not facts.cgroups.path:
        return Finding(subject, State.NOTE, "no cgroup v2 here: --memory and --cpus cannot be enforced")
    missing = sorted({"memory", "cpu"} - set(facts.cgroups.controllers))
    if missing:
        what = f"{facts.cgroups.path} has no {' and no '.join(missing)} controller"
        return Finding(subject, State.NOTE, f"{what}: --memory and --cpus cannot be enforced")
    if not facts.cgroups.writable:
        mend = "use sudo, or start it by 'systemd-run --user --scope -p Delegate=yes'"
        return Finding(subject, State.NOTE, f"{facts.cgroups.path} is not writable: no group can be made there", mend)
    return Finding(subject, State.OK, f"groups with memory and cpu can be made below {facts.cgroups.path}")

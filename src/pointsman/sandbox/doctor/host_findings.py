"""Whether isolation works on this host, and what is missing. Pure."""

import os

from pointsman.sandbox.child import Failure
from pointsman.sandbox.choice import forbidding_setting
from pointsman.sandbox.doctor.environment_findings import Finding, State
from pointsman.sandbox.host import HostFacts, possible_isolations
from pointsman.sandbox.resources import GROUP_MEND


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
    if not facts.bubblewrap:
        mend = "sudo apt-get install bubblewrap"
        return Finding(subject, State.NOTE, "bubblewrap is not installed", mend)
    forbidden = forbidding_setting(facts.settings)
    if forbidden is not None:
        setting, mend = forbidden
        return Finding(subject, State.NOTE, f"{setting} forbids user namespaces to ordinary users", mend)
    reason = facts.bubblewrap_error
    if facts.user_namespaces_error:
        reason += f" (user namespaces: {os.strerror(facts.user_namespaces_error)})"
    return Finding(subject, State.NOTE, f"bubblewrap cannot isolate here: {reason}", "use sudo")


def _limits(facts: HostFacts) -> Finding:
    subject = "--memory and --cpus"
    if facts.limits_error:
        return Finding(subject, State.NOTE, f"no control group can be made: {facts.limits_error}", GROUP_MEND)
    return Finding(subject, State.OK, "control groups can be made")

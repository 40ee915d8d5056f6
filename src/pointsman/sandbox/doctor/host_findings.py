"""Whether isolation works on this host, and what is missing. Pure."""

import os

from pointsman.sandbox.child import Failure
from pointsman.sandbox.choice import forbidding_setting
from pointsman.sandbox.doctor.environment_findings import Finding, State
from pointsman.sandbox.host import HostFacts, can_isolate
from pointsman.sandbox.resources import GROUP_MEND


def judge_host(facts: HostFacts) -> tuple[Finding, ...]:
    """What this host lets a sandbox do. Only the isolation that the caller would get can be what is to be mended."""
    return (_as_root(facts), _without_root(facts), _limits(facts))


def _as_root(facts: HostFacts) -> Finding:
    subject = "isolation as root"
    if not facts.is_root:
        return Finding(subject, State.NOTE, "not tried: this is not root", "sudo pointsman doctor")
    if can_isolate(facts):
        return Finding(subject, State.OK, "network, mount and process namespaces can be made")
    reason = Failure("namespaces", facts.namespaces_error, "").explain("", "", "")
    what, _, mend = reason.partition(": it takes ")
    return Finding(subject, State.MEND, what, f"give it {mend}" if mend else "")


def _without_root(facts: HostFacts) -> Finding:
    subject = "isolation without root"
    state = State.NOTE if facts.is_root else State.MEND
    if not facts.bubblewrap:
        mend = "sudo apt-get install bubblewrap"
        return Finding(subject, state, "bubblewrap is not installed", mend)
    if not facts.bubblewrap_error:
        return Finding(subject, State.OK, f"{facts.bubblewrap} can make namespaces")
    forbidden = forbidding_setting(facts.settings)
    if forbidden is not None:
        setting, mend = forbidden
        return Finding(subject, state, f"{setting} forbids user namespaces to ordinary users", mend)
    reason = facts.bubblewrap_error
    if facts.user_namespaces_error:
        reason += f" (user namespaces: {os.strerror(facts.user_namespaces_error)})"
    return Finding(subject, state, f"bubblewrap cannot isolate here: {reason}", "use sudo")


def _limits(facts: HostFacts) -> Finding:
    subject = "--memory and --cpus"
    if facts.limits_error:
        return Finding(subject, State.NOTE, f"no control group can be made: {facts.limits_error}", GROUP_MEND)
    return Finding(subject, State.OK, "control groups can be made")

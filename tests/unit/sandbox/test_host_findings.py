"""What a host allows, in words, for hosts that are not at hand."""

import errno
import os

import pytest

from pointsman.sandbox.doctor.environment_findings import State
from pointsman.sandbox.doctor.host_findings import judge_host
from pointsman.sandbox.host import Cgroups, HostFacts, look_at_host, possible_isolations

ROOT = HostFacts(is_root=True)
USER = HostFacts(is_root=False)
BWRAP = "/usr/bin/bwrap"


@pytest.mark.parametrize(
    ("facts", "possible"),
    [
        (ROOT, ("netns",)),
        (HostFacts(is_root=True, bubblewrap=BWRAP), ("netns", "bwrap")),
        (HostFacts(is_root=True, namespaces_error=errno.EPERM), ()),
        (USER, ()),
        (HostFacts(is_root=False, bubblewrap=BWRAP), ("bwrap",)),
        (HostFacts(is_root=False, bubblewrap=BWRAP, bubblewrap_error="no"), ()),
    ],
)
def test_what_can_isolate_follows_from_what_was_tried(facts: HostFacts, possible: tuple[str, ...]) -> None:
    assert possible_isolations(facts) == possible
    states = [each.state for each in judge_host(facts)[:2]]
    assert (State.OK in states) is bool(possible)
    assert (State.MEND in states) is not bool(possible)


def test_a_container_without_the_capability_is_told_which_one() -> None:
    told = judge_host(HostFacts(is_root=True, namespaces_error=errno.EPERM))[0]
    assert (told.state, told.mend) == (State.MEND, "give it CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), "
                                       "or choose --isolation none")  # fmt: skip


@pytest.mark.parametrize(
    ("closed", "mend"),
    [
        ("kernel.unprivileged_userns_clone=0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel.apparmor_restrict_unprivileged_userns=1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("user.max_user_namespaces=0", "sudo sysctl -w user.max_user_namespaces=28633"),
    ],
)
def test_a_kernel_setting_that_forbids_user_namespaces_is_named_with_its_opposite(closed: str, mend: str) -> None:
    facts = HostFacts(is_root=False, bubblewrap=BWRAP, bubblewrap_error="no", closed_by=(closed,))
    assert judge_host(facts)[1].mend == mend


def test_missing_bubblewrap_is_a_package() -> None:
    assert judge_host(USER)[1].mend == "sudo apt-get install bubblewrap"


@pytest.mark.parametrize(
    ("cgroups", "state", "words"),
    [
        (Cgroups(), State.NOTE, "no cgroup v2"),
        (Cgroups("/sys/fs/cgroup/a", True, ("cpu", "io")), State.NOTE, "no memory controller"),
        (Cgroups("/sys/fs/cgroup/a", False, ("cpu", "memory")), State.NOTE, "not writable"),
        (Cgroups("/sys/fs/cgroup/a", True, ("cpu", "memory")), State.OK, "can be made"),
    ],
)
def test_limits_need_a_writable_group_with_both_controllers(cgroups: Cgroups, state: State, words: str) -> None:
    told = judge_host(HostFacts(is_root=True, cgroups=cgroups))[2]
    assert told.state is state
    assert words in told.detail


def test_this_host_can_be_looked_at() -> None:
    facts = look_at_host()
    assert facts.is_root is (os.geteuid() == 0)
    assert len(judge_host(facts)) == 3

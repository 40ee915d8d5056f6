"""What a host allows, in words, for hosts that are not at hand."""

import errno
import os
from pathlib import Path

import pytest

from pointsman.sandbox.choice import USER_NAMESPACE_SETTINGS, explain_bubblewrap
from pointsman.sandbox.doctor.environment_findings import State
from pointsman.sandbox.doctor.host_findings import judge_host
from pointsman.sandbox.host import HostFacts, can_isolate, look_at_host
from pointsman.sandbox.resources import GROUP_MEND

ROOT = HostFacts(is_root=True)
USER = HostFacts(is_root=False)
BWRAP = "/usr/bin/bwrap"


@pytest.mark.parametrize(
    ("facts", "works", "states"),
    [
        (ROOT, True, "ok note"),
        (HostFacts(is_root=True, bubblewrap=BWRAP), True, "ok ok"),
        (HostFacts(is_root=True, bubblewrap=BWRAP, bubblewrap_error="no"), True, "ok note"),
        (HostFacts(is_root=True, namespaces_error=errno.EPERM), False, "mend note"),
        (HostFacts(is_root=True, namespaces_error=errno.EPERM, bubblewrap=BWRAP), False, "mend ok"),
        (USER, False, "note mend"),
        (HostFacts(is_root=False, bubblewrap=BWRAP), True, "note ok"),
        (HostFacts(is_root=False, bubblewrap=BWRAP, bubblewrap_error="no"), False, "note mend"),
    ],
)
def test_only_the_isolation_that_the_caller_would_get_can_be_what_is_to_be_mended(
    facts: HostFacts, works: bool, states: str
) -> None:
    assert can_isolate(facts) is works
    assert " ".join(each.state for each in judge_host(facts)[:2]) == states


def test_a_container_without_the_capability_is_told_which_one() -> None:
    told = judge_host(HostFacts(is_root=True, namespaces_error=errno.EPERM))[0]
    assert (told.state, told.mend) == (State.MEND, "give it CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), "
                                       "or choose --isolation none")  # fmt: skip


@pytest.mark.parametrize(("setting", "forbidding"), USER_NAMESPACE_SETTINGS.items())
def test_a_kernel_setting_that_forbids_user_namespaces_is_named_with_its_mend(setting: str, forbidding: str) -> None:
    facts = HostFacts(is_root=False, bubblewrap=BWRAP, bubblewrap_error="no", settings={setting: forbidding})
    told = judge_host(facts)[1]
    assert told.detail.startswith(f"{setting.replace('/', '.')} = {forbidding} ")
    assert told.state is State.MEND
    assert told.mend in explain_bubblewrap("no", {setting: forbidding})


def test_without_such_a_setting_bubblewraps_own_words_are_told() -> None:
    facts = HostFacts(is_root=False, bubblewrap=BWRAP, bubblewrap_error="no room", settings=dict.fromkeys(
        USER_NAMESPACE_SETTINGS, "7"))  # fmt: skip
    assert "no room" in judge_host(facts)[1].detail


def test_missing_bubblewrap_is_a_package() -> None:
    assert judge_host(USER)[1].mend == "sudo apt-get install bubblewrap"


def test_limits_need_a_control_group_that_could_be_made() -> None:
    assert judge_host(ROOT)[2].state is State.OK
    told = judge_host(HostFacts(is_root=True, limits_error="/x may not be written to"))[2]
    assert (told.state, told.mend) == (State.NOTE, GROUP_MEND)
    assert "/x may not be written to" in told.detail


def groups_of_ours() -> set[Path]:
    return set(Path("/sys/fs/cgroup").rglob("pointsman-*"))


def test_this_host_can_be_looked_at() -> None:
    before = groups_of_ours()
    facts = look_at_host()
    assert facts.is_root is (os.geteuid() == 0)
    assert len(judge_host(facts)) == 3
    assert groups_of_ours() == before, "the group of the trial is removed"

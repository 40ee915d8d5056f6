"""Which isolation is chosen, and what is said when there is none."""

import pytest

from pointsman.sandbox.choice import (
    USER_NAMESPACE_SETTINGS,
    Isolation,
    IsolationRefused,
    choose_isolation,
    explain_bubblewrap,
)

BWRAP = "/usr/bin/bwrap"


@pytest.mark.parametrize(
    ("requested", "is_root", "bubblewrap", "chosen"),
    [
        (Isolation.AUTO, True, BWRAP, Isolation.NETNS),
        (Isolation.AUTO, True, None, Isolation.NETNS),
        (Isolation.AUTO, False, BWRAP, Isolation.BWRAP),
        (Isolation.NETNS, True, None, Isolation.NETNS),
        (Isolation.BWRAP, False, BWRAP, Isolation.BWRAP),
        (Isolation.NONE, True, BWRAP, Isolation.NONE),
        (Isolation.NONE, False, None, Isolation.NONE),
    ],
)
def test_auto_isolates_as_well_as_it_can_and_none_is_only_for_who_asks(
    requested: Isolation, is_root: bool, bubblewrap: str | None, chosen: Isolation
) -> None:
    assert choose_isolation(requested, is_root=is_root, bubblewrap=bubblewrap) is chosen


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (Isolation.AUTO, "apt-get install bubblewrap"),
        (Isolation.BWRAP, "apt-get install bubblewrap"),
        (Isolation.NETNS, "sudo"),
    ],
)
def test_what_is_missing_for_isolation_is_named_and_it_is_never_given_up_silently(
    requested: Isolation, words: str
) -> None:
    with pytest.raises(IsolationRefused, match=words):
        choose_isolation(requested, is_root=False, bubblewrap=None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel/unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"),
        ({"user/max_user_namespaces": "0"}, "user.max_user_namespaces=15000"),
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor profile"),
        ({"kernel/unprivileged_userns_clone": "1", "user/max_user_namespaces": "9"}, "(Out of luck): run it with sudo"),
        ({}, "(Out of luck): run it with sudo"),
    ],
)
def test_what_forbids_user_namespaces_is_told_with_its_mend(settings: dict[str, str], words: str) -> None:
    text = explain_bubblewrap("warning: x\nbwrap: Out of luck\n", settings)
    assert words in text
    assert "\n" not in text
    assert settings.keys() <= USER_NAMESPACE_SETTINGS.keys()


def test_a_bubblewrap_that_says_nothing_is_told_too() -> None:
    assert "did not say why" in explain_bubblewrap("", {})

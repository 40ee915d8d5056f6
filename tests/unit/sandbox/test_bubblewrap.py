"""What bubblewrap is told for a view."""

from pathlib import Path

from pointsman.sandbox.bubblewrap import bubblewrap_arguments
from pointsman.sandbox.orders import View
from pointsman.sandbox.visibility import Bind, Cover


def pairs(words: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    return [(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option]


def order(words: tuple[str, ...], *wanted: str) -> list[int]:
    """Where each target, the last word of a mount, comes."""
    return [max(at for at, word in enumerate(words) if word == each) for each in wanted]


VIEW = View(
    "/usr/bin/tool",
    (
        Cover("/home/a", (Bind("/home/a/tools"), Bind("/home/a/work", writable=True))),
        Cover("/run"),
        Cover("/tmp", (Bind("/tmp/p/home", writable=True),), "/tmp/p/tmp"),
    ),
    ("/home/a/work", "/srv/shared", "/tmp/p/home"),
    ("/srv/shared/routes.yaml",),
    ("/srv/shared/venv",),
)


def test_everything_is_read_only_but_what_may_be_written() -> None:
    words = bubblewrap_arguments(VIEW, "/tmp/p")
    assert pairs(words, "--bind") == [
        ("/srv/shared", "/srv/shared"),
        ("/home/a/work", "/home/a/work"),
        ("/tmp/p/tmp", "/tmp"),
        ("/tmp/p/home", "/tmp/p/home"),
    ]
    assert ("/", "/") in pairs(words, "--ro-bind")
    assert ("/home/a/tools", "/home/a/tools") in pairs(words, "--ro-bind")
    assert ("/srv/shared/venv", "/srv/shared/venv") in pairs(words, "--ro-bind")
    assert ("/tmp/p/blank", "/srv/shared/routes.yaml") in pairs(words, "--ro-bind")


def test_covers_are_closed_after_what_is_shown_in_them() -> None:
    words = bubblewrap_arguments(VIEW, "/tmp/p")
    closed = [words[at + 1] for at, word in enumerate(words) if word == "--remount-ro"]
    assert closed == ["/sys", "/home/a", "/run"]
    at_work, at_home = order(words, "/home/a/work", "/home/a")
    assert words[at_home - 1] == "--remount-ro"
    assert at_work < at_home


def test_a_host_without_a_hosts_file_gets_none(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    assert str(hosts) not in bubblewrap_arguments(VIEW, "/tmp/p", str(hosts))
    hosts.write_text("")
    assert ("/tmp/p/hosts", str(hosts)) in pairs(bubblewrap_arguments(VIEW, "/tmp/p", str(hosts)), "--ro-bind")

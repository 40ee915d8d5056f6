"""Which directories are covered, and what is shown in them: pure decisions, then the looking up of programs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pointsman.sandbox.child import CannotStart, User
from pointsman.sandbox.visibility import (
    Bind,
    Cover,
    ancestors,
    is_shown,
    locate,
    own_homes,
    plan_view,
    program_needs,
    traversal_by,
)


def barring(*closed: str) -> Callable[[str], bool]:
    return lambda path: path not in closed


def everywhere(_: str) -> bool:
    return True


@pytest.mark.parametrize(("path", "above"), [("/", ()), ("/a", ("/",)), ("/a/b/c", ("/", "/a", "/a/b"))])
def test_ancestors_come_outermost_first_and_without_the_path_itself(path: str, above: tuple[str, ...]) -> None:
    assert ancestors(path) == above


def test_nothing_is_covered_when_everything_can_be_reached() -> None:
    assert plan_view([Bind("/usr/bin"), Bind("/home/u/work", writable=True)], everywhere) == ()


def test_an_untraversable_ancestor_is_covered_and_the_need_shown_in_it() -> None:
    plan = plan_view([Bind("/closed/python/v/3.11")], barring("/closed"))
    assert plan == (Cover("/closed", (Bind("/closed/python/v/3.11"),)),)


def test_the_outermost_barrier_is_the_one_that_is_covered() -> None:
    assert plan_view([Bind("/a/b/c/d")], barring("/a/b", "/a")) == (Cover("/a", (Bind("/a/b/c/d"),)),)


def test_a_need_that_is_itself_untraversable_is_no_reason_for_a_cover() -> None:
    assert plan_view([Bind("/closed")], barring("/closed")) == ()


def test_needs_under_one_barrier_share_its_cover() -> None:
    plan = plan_view([Bind("/closed/z"), Bind("/closed/a"), Bind("/srv/x")], barring("/closed"))
    assert plan == (Cover("/closed", (Bind("/closed/a"), Bind("/closed/z"))),)


def test_a_need_inside_a_shown_one_is_seen_with_it() -> None:
    plan = plan_view([Bind("/closed/work/.venv"), Bind("/closed/work", writable=True)], barring("/closed"))
    assert plan == (Cover("/closed", (Bind("/closed/work", writable=True),)),)


def test_a_barrier_inside_a_shown_tree_gets_a_cover_of_its_own_after_the_outer_one() -> None:
    plan = plan_view(
        [Bind("/closed/work/closed/x"), Bind("/closed/work", writable=True)], barring("/closed", "/closed/work/closed")
    )
    assert plan == (
        Cover("/closed", (Bind("/closed/work", writable=True),)),
        Cover("/closed/work/closed", (Bind("/closed/work/closed/x"),)),
    )


def test_a_hidden_directory_is_covered_even_when_nothing_is_needed_from_it() -> None:
    assert plan_view([Bind("/usr")], everywhere, ["/run"]) == (Cover("/run"),)


def test_what_is_needed_from_a_hidden_directory_is_shown_in_it() -> None:
    assert plan_view([Bind("/run/tool/bin")], everywhere, ["/run"]) == (Cover("/run", (Bind("/run/tool/bin"),)),)


def test_a_hidden_directory_inside_a_hidden_one_needs_no_cover_unless_it_is_shown() -> None:
    assert plan_view([], everywhere, ["/tmp", "/tmp/home"]) == (Cover("/tmp"),)
    plan = plan_view([Bind("/tmp/home/work")], everywhere, ["/tmp", "/tmp/home"])
    assert plan == (Cover("/tmp", (Bind("/tmp/home/work"),)),)
    plan = plan_view([Bind("/tmp/a")], everywhere, ["/tmp", "/tmp/a/home"])
    assert plan == (Cover("/tmp", (Bind("/tmp/a"),)), Cover("/tmp/a/home"))


def test_what_replaces_a_hidden_directory_goes_with_its_cover() -> None:
    assert plan_view([], everywhere, ["/tmp"], {"/tmp": "/p/tmp", "/other": "/p/other"}) == (
        Cover("/tmp", (), "/p/tmp"),
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/etc/x", True), ("/home/x", False), ("/home/work/x", True), ("/home/work/deep/x", False), ("/homework", True)],
)
def test_what_is_shown_is_outside_the_covers_or_bound_in_the_innermost(path: str, shown: bool) -> None:
    covers = (Cover("/home", (Bind("/home/work"),)), Cover("/home/work/deep"))
    assert is_shown(path, covers) is shown


def test_a_home_is_hidden_when_it_is_a_directory_that_the_user_owns(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    names = (str(home), str(tmp_path / "link"), "/", "", "relative", str(tmp_path / "absent"))
    assert own_homes(User(os.geteuid(), 1, "owner", names)) == (str(home),)
    assert own_homes(User(os.geteuid() + 1, 1, "daemon", names)) == ()


def test_a_need_asked_for_twice_is_writable_when_either_is() -> None:
    plan = plan_view([Bind("/closed/w"), Bind("/closed/w", writable=True)], barring("/closed"))
    assert plan == (Cover("/closed", (Bind("/closed/w", writable=True),)),)


def test_a_name_that_only_starts_like_a_shown_one_is_not_inside_it() -> None:
    plan = plan_view([Bind("/closed/work"), Bind("/closed/workshop/x")], barring("/closed"))
    assert plan == (Cover("/closed", (Bind("/closed/work"), Bind("/closed/workshop/x"))),)


@pytest.mark.parametrize(
    ("mode", "user", "allowed"),
    [
        (0o700, User(os.geteuid(), 1, "owner"), True),
        (0o600, User(os.geteuid(), 1, "owner"), False),
        (0o710, User(1234, os.getegid(), "group"), True),
        (0o701, User(1234, os.getegid(), "group"), False),
        (0o701, User(1234, 1234, "other"), True),
        (0o770, User(1234, 1234, "other"), False),
        (0o710, User(1234, 1234, "member", (), (os.getegid(),)), True),
        (0o077, User(os.geteuid(), os.getegid(), "owner"), False),
    ],
)
def test_the_first_class_that_fits_a_user_decides(tmp_path: Path, mode: int, user: User, allowed: bool) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    assert traversal_by(user)(str(place)) is allowed


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A prefix: bin with two programs, libraries beside it, and what must not be shown."""
    for name in ("bin", "lib", "share"):
        (tmp_path / "prefix" / name).mkdir(parents=True)
    for name, text in (("tool", "\x7fELF"), ("script", "#!/usr/bin/env -S tool --flag\n")):
        path = tmp_path / "prefix" / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "prefix" / "bin" / "plain").write_text("data")
    return tmp_path / "prefix"


def test_a_name_is_looked_up_in_the_search_path_and_must_be_executable(tools: Path, tmp_path: Path) -> None:
    search_path = f"{tmp_path}:{tools}/bin"
    assert locate("tool", search_path, "/") == f"{tools}/bin/tool"
    with pytest.raises(CannotStart, match="command not found: plain"):
        locate("plain", search_path, "/")
    with pytest.raises(CannotStart, match="command not found: absent"):
        locate("absent", search_path, "/")


def test_a_path_is_relative_to_the_directory_of_the_command(tools: Path) -> None:
    assert locate("bin/tool", "", str(tools)) == f"{tools}/bin/tool"
    with pytest.raises(CannotStart, match="no such file"):
        locate("./tool", "", str(tools))
    with pytest.raises(CannotStart, match="directory"):
        locate("./bin", "", str(tools))


def test_a_program_needs_its_directory_and_the_libraries_beside_it_but_not_the_rest(tools: Path) -> None:
    needs = set(program_needs(f"{tools}/bin/tool", "", everywhere))
    assert needs == {Bind(f"{tools}/bin"), Bind(f"{tools}/lib")}


def test_an_interpreter_of_a_virtual_environment_needs_what_says_that_it_is_one(tools: Path) -> None:
    (tools / "pyvenv.cfg").touch()
    (tools / ".env").touch()
    needs = set(program_needs(f"{tools}/bin/tool", "", everywhere))
    assert needs == {Bind(f"{tools}/bin"), Bind(f"{tools}/lib"), Bind(f"{tools}/pyvenv.cfg")}


def test_every_link_on_the_way_to_a_program_is_needed(tools: Path, tmp_path: Path) -> None:
    for directory, target in (("first", "../second/tool"), ("second", f"{tools}/bin/tool")):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "tool").symlink_to(target)
    needs = set(program_needs(f"{tmp_path}/first/tool", "", everywhere))
    assert {Bind(f"{tmp_path}/first"), Bind(f"{tmp_path}/second"), Bind(f"{tools}/bin")} <= needs


def test_links_and_scripts_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "s").write_text(f"#!{tmp_path}/s\n")
    for name in ("a", "s"):
        assert set(program_needs(f"{tmp_path}/{name}", "", everywhere)) == {Bind(str(tmp_path))}


def test_a_program_alone_in_a_closed_directory_is_shown_without_its_neighbours(tools: Path) -> None:
    assert set(program_needs(f"{tools}/bin/tool", "", barring(f"{tools}/bin"))) == {Bind(f"{tools}/bin/tool")}


def test_the_interpreter_of_a_script_is_needed_too(tools: Path, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "run"
    script.parent.mkdir()
    script.write_text(f"#! {tools}/bin/tool -x\n")
    assert Bind(f"{tools}/bin") in set(program_needs(str(script), "", everywhere))


def test_an_interpreter_behind_env_is_looked_up(tools: Path, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "run"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/env -S tool --flag\n")
    assert Bind(f"{tools}/bin") in set(program_needs(str(script), f"{tools}/bin", everywhere))
    assert Bind(f"{tools}/bin") not in set(program_needs(str(script), "/nowhere", everywhere))

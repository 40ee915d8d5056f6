"""Sizes, shares, and where control groups can be made: decisions over text, and a tree of files for version 2."""

import os
from pathlib import Path

import pytest

from pointsman.sandbox.control_groups import make_control_groups
from pointsman.sandbox.resources import (
    Hierarchy,
    Level,
    NoControlGroup,
    Place,
    Resources,
    ancestors,
    choose_place,
    find_hierarchy,
    out_of_memory,
    read_cpus,
    read_memory,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16777216", 16 << 20),
        ("16M", 16 << 20),
        ("512m", 512 << 20),
        ("2G", 2 << 30),
        ("2GiB", 2 << 30),
        ("2gb", 2 << 30),
        ("1T", 1 << 40),
        (" 20480K ", 20 << 20),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert read_memory(text) == size


@pytest.mark.parametrize("text", ["", "2", "16777215", "15M", "1.5G", "-2G", "G", "2 G", "2P", "2iB", "٢G", "9" * 16])
def test_what_is_no_sensible_size_is_refused_with_an_example_or_the_least(text: str) -> None:
    with pytest.raises(ValueError, match=r"512M or 2G|at least 16M"):
        read_memory(text)


@pytest.mark.parametrize(("text", "cpus"), [("1", 1.0), ("1.5", 1.5), (".5", 0.5), ("0.01", 0.01), ("4096", 4096.0)])
def test_shares_of_processors_are_read(text: str, cpus: float) -> None:
    assert read_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "0", "0.009", "-1", "4096.001", "4097", "1e3", "nan", "inf", "1,5", "٢"])
def test_what_is_no_sensible_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"for example 1\.5"):
        read_cpus(text)


V1 = """\
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/mem\\040ory cgroup rw,memory 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
V1_OWN = "4:memory:/m/x\n2:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u\n"


@pytest.mark.parametrize(
    ("controller", "mounts", "own", "found"),
    [
        ("memory", V1, V1_OWN, Hierarchy(1, "/sys/fs/cgroup/mem ory", "/m/x")),
        ("cpu", V1, V1_OWN, Hierarchy(1, "/sys/fs/cgroup/cpu,cpuacct", "/c")),
        ("cpuset", V1, V1_OWN, Hierarchy(2, "/sys/fs/cgroup/unified", "/u")),
        ("memory", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/user.slice/a:b\n",
         Hierarchy(2, "/sys/fs/cgroup", "/user.slice/a:b")),
        ("memory", "", "0::/\n", None),
        ("memory", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nshort\n", "", None),
    ],
)  # fmt: skip
def test_each_controller_is_looked_for_in_version_1_first(
    controller: str, mounts: str, own: str, found: Hierarchy | None
) -> None:
    assert find_hierarchy(controller, mounts, own) == found


def test_our_group_and_those_above_it_are_known_innermost_first() -> None:
    assert ancestors(Hierarchy(2, "/cg", "/a/b")) == ("/cg/a/b", "/cg/a", "/cg")
    assert ancestors(Hierarchy(2, "/cg", "/")) == ("/cg",)


BOTH = ("cpu", "memory")


def level(
    path: str, *, writable: bool = True, available: str = "cpu memory", enabled: str = "", occupied: bool
) -> Level:
    return Level(path, writable, available.split(), enabled.split(), occupied)


@pytest.mark.parametrize(
    ("levels", "place"),
    [
        ([level("/own", occupied=False)], Place("/own", step_aside=True)),
        ([level("/own", occupied=True), level("/", enabled="cpu memory", occupied=True)], Place("/")),
        ([level("/own", occupied=True, enabled="cpu memory")], Place("/own")),
        (
            [level("/own", occupied=True), level("/up", enabled="memory", occupied=True),
             level("/", enabled="memory cpu", occupied=True)],
            Place("/"),
        ),
    ],
)  # fmt: skip
def test_the_nearest_group_that_can_have_such_children_is_chosen(levels: list[Level], place: Place) -> None:
    assert choose_place(levels, BOTH) == place


@pytest.mark.parametrize(
    ("levels", "cause"),
    [
        ([level("/own", writable=False, occupied=False)], "/own may not be written to"),
        ([level("/own", available="memory", occupied=False)], "/own was given no cpu controller"),
        ([level("/own", occupied=True)], "other processes are in /own"),
        (
            [level("/own", occupied=True), level("/", writable=False, enabled="cpu memory", occupied=True)],
            "other processes are in /own",
        ),
    ],
)
def test_a_limit_that_cannot_be_set_is_refused_with_its_cause_and_the_mend(levels: list[Level], cause: str) -> None:
    with pytest.raises(NoControlGroup, match="systemd-run --user --scope -p Delegate=yes") as caught:
        choose_place(levels, BOTH)
    assert cause in str(caught.value)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What /proc and a delegated group of version 2 look like."""
    own = tmp_path / "cg" / "scope"
    own.mkdir(parents=True)
    for group in (own, own.parent):
        for name, content in (
            ("controllers", "cpu memory pids"),
            ("subtree_control", ""),
            ("procs", f"{os.getpid()}\n"),
        ):
            (group / f"cgroup.{name}").write_text(content)
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path}/cg cgroup2 rw 0 0\n")
    (tmp_path / "cgroup").write_text("0::/scope\n")
    return tmp_path


def test_a_delegated_group_of_version_2_gets_a_child_with_the_limits(tree: Path) -> None:
    groups = make_control_groups(Resources(64 << 20, 1.5), tree)
    (inner,) = groups.paths
    path, own = Path(inner).parent, tree / "cg" / "scope"
    assert path.parent == own
    assert (own / "cgroup.subtree_control").read_text() == "+memory +cpu"
    assert (own / "pointsman" / "cgroup.procs").read_text() == str(os.getpid())
    assert list(Path(inner).iterdir()) == [], "what the command may reach from within bounds nothing"
    assert (Path(path) / "memory.max").read_text() == str(64 << 20)
    assert (Path(path) / "cpu.max").read_text() == "150000 100000"
    (Path(path) / "memory.events").write_text("oom 3\noom_kill 2\n")
    assert groups.out_of_memory == 2


def test_only_what_was_asked_for_is_limited(tree: Path) -> None:
    assert make_control_groups(Resources(), tree).paths == []
    (inner,) = make_control_groups(Resources(cpus=0.5), tree).paths
    assert {file.name for file in Path(inner).parent.iterdir()} == {"cpu.max", "command"}


def test_a_group_that_others_use_too_is_left_alone(tree: Path) -> None:
    (tree / "cg" / "scope" / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    with pytest.raises(NoControlGroup, match="other processes are in"):
        make_control_groups(Resources(64 << 20), tree)
    assert not (tree / "cg" / "scope" / "pointsman").exists()


def test_a_controller_that_is_not_mounted_is_named(tree: Path) -> None:
    (tree / "mounts").write_text("")
    with pytest.raises(NoControlGroup, match="the memory controller is not mounted"):
        make_control_groups(Resources(64 << 20), tree)


@pytest.mark.parametrize(("killed", "words"), [(1, "ended a process"), (3, "ended 3 processes")])
def test_running_out_of_memory_is_one_line(killed: int, words: str) -> None:
    text = out_of_memory(killed, Resources(64 << 20))
    assert words in text
    assert "64 MiB" in text
    assert "\n" not in text

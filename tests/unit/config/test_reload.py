"""Reading a configuration again: what takes effect, what waits for a restart, and what a bad file changes."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.config.reload import POLL_SECONDS, Reload, Source, Stamp, changes, decide, load, reload, stamp, watch
from pointsman.config.setting_keys import KEYS
from pointsman.config.settings import Settings, load_settings

HOME = {"HOME": "/home/op"}
FILE = "pointsman.yaml"
RECORDS = "providers: [{name: a, type: mock}]\nroutes: [{name: r, candidates: [a]}]\n"


def settings(directory: Path, text: str) -> Settings:
    (directory / FILE).write_text(text)
    return load_settings(directory / FILE, HOME)


def test_nothing_has_changed_in_an_equal_file(tmp_path: Path) -> None:
    old, new = settings(tmp_path, RECORDS), settings(tmp_path, RECORDS)
    assert decide(old, new) == Reload(old, False)


@pytest.mark.parametrize(
    "text",
    [
        RECORDS.replace("type: mock", "type: mock, daily_request_limit: 5"),
        RECORDS.replace("type: mock", "type: mock, error_mappings: [{http_status: 400, category: auth_error}]"),
        RECORDS.replace("name: r", "name: other"),
        RECORDS + "default_route: r\n",
        "",
    ],
)
def test_records_and_the_default_route_take_effect_at_once(text: str, tmp_path: Path) -> None:
    old, new = settings(tmp_path, RECORDS), settings(tmp_path, text)
    done = decide(old, new)
    assert done.changed
    assert (done.settings.records, done.settings.default_route) == (new.records, new.default_route)
    assert not any("restart" in line for line in done.lines)


def test_another_directory_of_keys_takes_effect_at_once_since_providers_name_files_in_it(tmp_path: Path) -> None:
    text = "providers: [{name: a, type: openai, model: m}]\n"
    old = settings(tmp_path, text)
    done = decide(old, settings(tmp_path, f"{text}secrets_dir: /keys\n"))
    assert (done.changed, done.lines, done.settings.secrets_dir) == (True, (), Path("/keys"))
    assert done.settings.records.providers[0].config["KEY_FILE"] == "/keys/a_api_key"
    assert changes(old, done.settings) == "provider a changed"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("listen.data", "listen: {data: '127.0.0.1:1'}"),
        ("data_dir", "data_dir: /d"),
        ("database_url", "database_url: postgresql://u:p@h/d"),
        ("key_file", "key_file: /k"),
        ("auth.grpc", "auth: {grpc: none}"),
        ("auth.data", "auth: {data: keys}"),
        ("public_data_url", "public_data_url: https://g.example/v1"),
        ("operation_log.keep_days", "operation_log: {keep_days: 7}"),
        ("usage_keep_days", "usage_keep_days: 7"),
        ("receipts", "receipts: all"),
    ],
)
def test_what_needs_a_restart_is_named_and_stays_as_it_was(key: str, text: str, tmp_path: Path) -> None:
    old = settings(tmp_path, RECORDS)
    done = decide(old, settings(tmp_path, f"{RECORDS}{text}\n"))
    said = f"{tmp_path / FILE}:3: {key} has changed and takes effect at the next start; restart the gateway"
    assert said in done.lines
    assert done.settings.shown() == old.shown()
    assert done.settings.database_url == old.database_url
    assert not done.changed


def test_another_password_of_the_database_needs_a_restart_though_it_is_not_shown(tmp_path: Path) -> None:
    old = settings(tmp_path, "database_url: postgresql://u:p@h/d\n")
    (line,) = decide(old, settings(tmp_path, "database_url: postgresql://u:q@h/d\n")).lines
    assert ": database_url has changed" in line


def test_every_setting_takes_effect_or_is_named(tmp_path: Path) -> None:
    old = settings(tmp_path, "")
    assert set(old.shown()) == {key.path for key in KEYS}


def test_warnings_are_told_once(tmp_path: Path) -> None:
    old = settings(tmp_path, "")
    first = decide(old, settings(tmp_path, RECORDS))
    assert [line for line in first.lines if "it has no fallback" in line]
    assert decide(first.settings, settings(tmp_path, RECORDS)).lines == ()


def test_a_bad_file_keeps_the_old_configuration_and_every_problem_is_told(tmp_path: Path) -> None:
    old = settings(tmp_path, RECORDS)
    (tmp_path / FILE).write_text("providers: [{name: a, type: x1}]\nlisten: {data: x}\n")
    done = reload(old, lambda: load_settings(tmp_path / FILE, HOME))
    assert done.settings is old
    assert done.refused
    assert not done.changed
    assert [line.replace(f"{tmp_path}/", "")[:17] for line in done.lines[:-1]] == [
        "pointsman.yaml:1:",
        "pointsman.yaml:2:",
    ]
    assert done.lines[-1] == "the configuration is not read again; what was in force stays"


def test_a_good_file_after_a_bad_one_takes_effect(tmp_path: Path) -> None:
    old = replace(settings(tmp_path, RECORDS), default_route="x")
    assert reload(old, lambda: load_settings(tmp_path / FILE, HOME)).settings.default_route == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (RECORDS, ""),
        (RECORDS + "auth: {data: keys}\n", ""),
        (RECORDS.replace("type: mock", "type: mock, daily_request_limit: 5"), "provider a changed"),
        (RECORDS.replace("name: r", "name: other"), "route other added; route r removed"),
        (
            RECORDS.replace("[a]", "[a], strategy: weighted") + "default_route: r\n",
            "route r changed; default_route is r",
        ),
        ("", "provider a removed; route r removed"),
    ],
)
def test_what_has_changed_is_told_in_a_line(text: str, told: str, tmp_path: Path) -> None:
    old = settings(tmp_path, RECORDS)
    new = settings(tmp_path, text)
    assert changes(old, new) == told
    assert changes(old, old) == ""


@pytest.mark.parametrize(("count", "end"), [(8, "p7 added"), (9, "p7 and 1 more added")])
def test_a_line_names_eight_of_a_kind(count: int, end: str, tmp_path: Path) -> None:
    old = settings(tmp_path, "")
    new = settings(tmp_path, f"providers: [{', '.join(f'{{name: p{each}, type: mock}}' for each in range(count))}]\n")
    assert changes(old, new) == f"provider p0, p1, p2, p3, p4, p5, p6, {end}"


def test_each_reading_sees_the_environment_and_the_options_of_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("default_route: r\n")
    environ = {**HOME, "POINTSMAN_SECRETS_DIR": "/s"}
    source = Source(tmp_path / FILE, environ, {"default_route": "optional"})
    loaded = load(source)
    assert (loaded.settings.default_route, loaded.settings.secrets_dir) == ("optional", Path("/s"))
    assert loaded.stamp == stamp(tmp_path / FILE)
    (tmp_path / FILE).write_text("default_route: another\n")
    assert reload(loaded.settings, source.load).settings.default_route == "optional"


def test_what_was_read_from_is_not_shown_since_it_may_hold_a_password() -> None:
    source = Source(None, {"POINTSMAN_DATABASE_URL": "postgresql://u:pass-word@h/d"}, {"database_url": "pass-word"})
    assert "pass-word" not in repr(source)
    assert source.stamp() == ()


# Watching


def _calls(steps: list[Callable[[], None]], path: Path, seen: Stamp | None = None) -> list[int]:
    """At which looks a change is told, when the steps are done between them."""
    told: list[int] = []

    async def run() -> None:
        looks = iter(range(len(steps)))
        at = -1

        async def wait(seconds: float) -> None:
            nonlocal at
            assert seconds == POLL_SECONDS
            at = next(looks, -1)
            if at < 0:
                raise asyncio.CancelledError
            steps[at]()

        async def changed() -> None:
            told.append(at)

        with pytest.raises(asyncio.CancelledError):
            await watch(lambda: stamp(path), wait, changed, seen)

    asyncio.run(run())
    return told


def _nothing() -> None:
    pass


def _write(path: Path, text: str) -> Callable[[], None]:
    def write() -> None:
        path.write_text(text)

    return write


def test_a_change_is_told_once_when_the_file_is_still(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("a")
    assert _calls([_nothing, _write(path, "bb"), _write(path, "ccc"), _nothing, _nothing, _nothing], path) == [3]


def test_a_change_between_reading_and_watching_is_told(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("a")
    read = stamp(path)
    path.write_text("bb")
    assert _calls([_nothing, _nothing], path, read) == [0]
    assert _calls([_nothing, _nothing], path, stamp(path)) == []


def test_a_file_that_is_replaced_by_rename_or_through_a_link_is_a_change(tmp_path: Path) -> None:
    path, target = tmp_path / FILE, tmp_path / "new"
    path.write_text("a")
    status = path.stat()

    def replace_it() -> None:
        target.write_text("b")
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        target.rename(path)

    assert _calls([replace_it, _nothing, _nothing], path) == [1]


def test_a_file_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("a")
    assert _calls([path.unlink, _nothing, _write(path, "bb"), _nothing], path) == [3]
    assert stamp(tmp_path / "none") == ()

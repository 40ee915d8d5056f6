"""What the gateway's settings mean, wherever they stand, and what is said of those that mean nothing."""

import contextlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.listen_address import Address
from pointsman.config.problems import SettingsError
from pointsman.config.setting_keys import BY_PATH, KEYS
from pointsman.config.settings import DEFAULT_LISTEN, Settings, load_settings
from tests.support.canary import KEY as CANARY

HOME = {"HOME": "/home/op"}
FILE = "pointsman.yaml"
GOOD = {
    "listen.data": "127.0.0.2:1",
    "listen.control": "127.0.0.2:2",
    "listen.grpc": "'[::1]:3'",
    "data_dir": "/data",
    "database_url": "postgresql://u:p@h/d",
    "key_file": "/keys/k",
    "auth.grpc": "none",
    "auth.data": "keys",
    "auth.metrics": "none",
    "public_data_url": "https://gateway.example:8780/v1",
    "secrets_dir": "/secrets",
    "default_route": "fast",
    "role": "all",
    "nats_url": "nats://u:p@h:1",
    "direct_allowed_cidrs": "10.0.0.0/8",
    "operation_log.dir": "/operations",
    "operation_log.keep_days": "'7'",
    "usage_keep_days": "'8'",
    "receipts": "fast",
}
MEANT = {**GOOD, "listen.grpc": "[::1]:3", "database_url": "postgresql://***", "nats_url": "nats://…@h:1"}
MEANT |= {"operation_log.keep_days": "7", "usage_keep_days": "8"}


def yaml_of(key: str, text: str) -> str:
    outer, _, inner = key.partition(".")
    return f"{outer}: {{{inner}: {text}}}\n" if inner else f"{outer}: {text}\n"


def load(directory: Path, text: str, environ: dict[str, str] | None = None, **options: str) -> Settings:
    (directory / FILE).write_text(text)
    given = {key.replace("__", "."): value for key, value in options.items()}
    return load_settings(directory / FILE, {**HOME, **(environ or {})}, given)


def told(directory: Path, text: str = "", environ: dict[str, str] | None = None, **options: str) -> list[str]:
    """Every problem, without the directory of the file."""
    with pytest.raises(SettingsError) as caught:
        load(directory, text, environ, **options)
    lines = str(caught.value).replace(f"{directory}/", "").splitlines()
    assert len(lines) == len(caught.value.problems)
    assert all("; " in line for line in lines), "a line without a next step"
    assert CANARY not in f"{caught.value} {caught.value!r} {caught.value.problems!r}"
    return lines


def test_without_anything_it_listens_on_loopback_and_keeps_its_data_with_the_user(tmp_path: Path) -> None:
    for settings in (load_settings(None, HOME), load(tmp_path, "# nothing\n"), load(tmp_path, "{}")):
        assert settings.listen == DEFAULT_LISTEN
        assert settings.data_dir == Path("/home/op/.local/share/pointsman")
        assert settings.database_url.reveal() == "sqlite:////home/op/.local/share/pointsman/pointsman.db"
        assert settings.key_file == settings.data_dir / "credentials.key"
        assert (settings.auth.grpc, settings.tls, settings.warnings) == ("token", None, ())
        assert set(dict(settings.sources).values()) == {"default"}


def test_the_default_listeners_are_the_published_ones() -> None:
    assert [str(each) for each in (DEFAULT_LISTEN.data, DEFAULT_LISTEN.control, DEFAULT_LISTEN.grpc)] == [
        "127.0.0.1:8780",
        "127.0.0.1:8781",
        "127.0.0.1:8782",
    ]


@pytest.mark.parametrize("key", GOOD)
def test_every_key_may_stand_in_the_file_a_variable_or_an_option(key: str, tmp_path: Path) -> None:
    bare = GOOD[key].strip("'")
    for settings, source in (
        (load(tmp_path, yaml_of(key, GOOD[key])), f"{tmp_path / FILE}:1"),
        (load(tmp_path, "", {BY_PATH[key].variable: bare}), BY_PATH[key].variable),
        (load(tmp_path, "", None, **{key.replace(".", "__"): bare}), BY_PATH[key].option),
    ):
        assert settings.shown()[key] == MEANT[key]
        assert dict(settings.sources)[key] == source


@pytest.mark.parametrize("key", ["operation_log.keep_days", "usage_keep_days"])
@pytest.mark.parametrize("days", ["0", "3651", "-1", "1.5", "x", "٣"])
def test_days_that_are_none_are_told(key: str, days: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, "", {BY_PATH[key].variable: days})
    assert f"{key} is no whole number from 1 to 3650; write days, as in {BY_PATH[key].default}" in line
    for good in ("1", "3650"):
        assert load(tmp_path, "", {BY_PATH[key].variable: good}).shown()[key] == good


def test_an_option_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    text, environ = "listen: {data: '127.0.0.1:1'}", {"POINTSMAN_LISTEN__DATA": "127.0.0.1:2"}
    assert load(tmp_path, text).listen.data.port == 1
    assert load(tmp_path, text, environ).listen.data.port == 2
    assert load(tmp_path, text, environ, listen__data="127.0.0.1:3").listen.data.port == 3


def test_the_names_of_variables_and_options_are_these() -> None:
    assert [(key.variable, key.option) for key in KEYS] == [
        ("POINTSMAN_LISTEN__DATA", "--listen-data"),
        ("POINTSMAN_LISTEN__CONTROL", "--listen-control"),
        ("POINTSMAN_LISTEN__GRPC", "--listen-grpc"),
        ("POINTSMAN_DATA_DIR", "--data-dir"),
        ("POINTSMAN_DATABASE_URL", "--database-url"),
        ("POINTSMAN_KEY_FILE", "--key-file"),
        ("POINTSMAN_AUTH__GRPC", "--grpc-auth"),
        ("POINTSMAN_AUTH__DATA", "--data-auth"),
        ("POINTSMAN_AUTH__METRICS", "--metrics-auth"),
        ("POINTSMAN_PUBLIC_DATA_URL", "--public-data-url"),
        ("POINTSMAN_ROLE", "--role"),
        ("POINTSMAN_NATS_URL", "--nats"),
        ("POINTSMAN_SECRETS_DIR", "--secrets-dir"),
        ("POINTSMAN_DEFAULT_ROUTE", "--default-route"),
        ("POINTSMAN_DIRECT_ALLOWED_CIDRS", "--direct-allowed-cidrs"),
        ("POINTSMAN_OPERATION_LOG__DIR", "--operation-log-dir"),
        ("POINTSMAN_OPERATION_LOG__KEEP_DAYS", "--operation-log-keep-days"),
        ("POINTSMAN_USAGE_KEEP_DAYS", "--usage-keep-days"),
        ("POINTSMAN_RECEIPTS", "--receipts"),
        ("POINTSMAN_TLS__CERT", "--tls-cert"),
        ("POINTSMAN_TLS__KEY", "--tls-key"),
        ("POINTSMAN_TLS__CLIENT_CA", "--client-ca"),
    ]


def test_an_empty_variable_and_a_key_without_a_value_count_as_absent(tmp_path: Path) -> None:
    settings = load(tmp_path, "data_dir:\nlisten:\ntls: {cert: }\n", {"POINTSMAN_KEY_FILE": " "})
    assert set(dict(settings.sources).values()) == {"default"}


@pytest.mark.parametrize("key", ["data_dir", "key_file"])
def test_relative_paths_start_at_the_files_directory_and_those_of_variables_where_we_are(
    key: str, tmp_path: Path
) -> None:
    assert getattr(load(tmp_path, f"{key}: sub/x"), key) == tmp_path / "sub/x"
    assert getattr(load(tmp_path, "", {BY_PATH[key].variable: "sub/x"}), key) == Path.cwd() / "sub/x"


@pytest.mark.parametrize("key", [*GOOD, "tls.cert", "tls.key", "tls.client_ca"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("4", "a number"),
        ("true", "true or false"),
        ("2024-01-01", "a date"),
        ("[a]", "a list"),
        ("{a: b}", "a mapping"),
    ],
)
def test_a_value_that_is_no_text_is_refused(key: str, text: str, kind: str, tmp_path: Path) -> None:
    if BY_PATH[key].is_number and kind == "a number":
        assert load(tmp_path, yaml_of(key, text)).shown()[key] == text
        return
    if key == "receipts" and kind == "a list":
        assert load(tmp_path, yaml_of(key, text)).shown()[key] == "a"
        return
    (line,) = told(tmp_path, yaml_of(key, text))
    if BY_PATH[key].is_list and kind == "a list":
        assert "holds what is no network" in line
        return
    what = "a number" if BY_PATH[key].is_number else "a list" if BY_PATH[key].is_list else "text"
    assert line.startswith(f"{FILE}:1: {key} is {kind}; write {what}, for example ")


@pytest.mark.parametrize("section", ["listen", "auth", "tls"])
@pytest.mark.parametrize("text", ["x", "4", "[a]"])
def test_a_section_that_is_no_mapping_is_refused(section: str, text: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, f"\n{section}: {text}")
    assert line.startswith(f"{FILE}:2: {section} is ")
    assert f"write {section}: {{" in line


@pytest.mark.parametrize("key", GOOD)
@pytest.mark.parametrize(("text", "reason"), [("''", "is empty"), ('"a\\u0007b"', "holds a control character")])
def test_a_text_that_can_mean_nothing_is_refused(key: str, text: str, reason: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, yaml_of(key, text))
    assert f"{FILE}:1: {key} {reason}; " in line


def test_a_value_has_a_longest_length(tmp_path: Path) -> None:
    assert str(load(tmp_path, f"key_file: /{'k' * 4095}").key_file).endswith("kkk")
    assert told(tmp_path, f"key_file: /{'k' * 4096}") == [
        f"{FILE}:1: key_file is longer than 4096 characters; check it"
    ]


@pytest.mark.parametrize("key", ["data_dir", "key_file", "tls.cert"])
def test_a_tilde_is_not_taken_for_a_directory_of_that_name(key: str, tmp_path: Path) -> None:
    assert any(f"{key} begins with ~" in line for line in told(tmp_path, yaml_of(key, "~/x")))


@pytest.mark.parametrize("role", ["api", "data"])
def test_one_process_of_several_needs_a_bus(role: str, tmp_path: Path) -> None:
    reason = f"role {role} is one process of several, and there is no nats_url between them"
    assert told(tmp_path, f"role: {role}\n") == [f"{FILE}:1: {reason}; set nats_url, or leave role out"]
    assert load(tmp_path, f"role: {role}\nnats_url: nats://h\n").role == role


def test_what_may_be_a_credential_in_a_brokers_url_is_not_shown(tmp_path: Path) -> None:
    settings = load(tmp_path, f"nats_url: 'tls://user:{CANARY}@h'\n")
    assert settings.shown()["nats_url"] == "tls://…@h:4222"
    assert CANARY not in repr(settings)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("datadir: x", "data_dir"),
        ("database: x", "database_url"),
        ("databse_url: x", "database_url"),
        ("keyfile: x", "key_file"),
        ("listn: {}", "listen"),
        ("provider: x", "providers"),
        ("listen: {grps: x}", "grpc"),
        ("listen: {rest: x}", "listen: {control: …}"),
        ("listen: {data_dir: x}", "data_dir outside listen"),
        ("listen_grpc: x", "listen: {grpc: …}"),
        ("listen.grpc: x", "listen: {grpc: …}"),
        ("grpc: x", "listen: {grpc: …}"),
        ("certificate: x", "tls: {cert: …}"),
        ("tls: {certs: x}", "cert"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest(text: str, meant: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, text)
    assert line.startswith(f"{FILE}:1: unknown key")
    assert line.endswith(f"; did you mean {meant}?")


def test_an_unknown_key_that_is_near_to_nothing_is_told_with_all(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "zzz: x")
    assert "unknown key zzz; the keys here are " in line
    assert all(key in line for key in ("data_dir", "listen", "tls", "auth"))
    (line,) = told(tmp_path, f"{CANARY}: x")
    assert "unknown key; " in line


def test_keys_that_begin_with_x_are_for_anchors(tmp_path: Path) -> None:
    text = "x-base: &base {data: '127.0.0.1:1'}\nlisten: {<<: *base, grpc: '127.0.0.1:2'}"
    assert (load(tmp_path, text).listen.data.port, load(tmp_path, text).listen.grpc.port) == (1, 2)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("POINTSMAN_LISTEN__GRCP", "POINTSMAN_LISTEN__GRPC"),
        ("POINTSMAN_LISTEN_GRPC", "POINTSMAN_LISTEN__GRPC"),
        ("POINTSMAN_DATADIR", "POINTSMAN_DATA_DIR"),
        ("POINTSMAN_DATABASE__URL", "POINTSMAN_DATABASE_URL"),
        ("POINTSMAN_TLS_CERT", "POINTSMAN_TLS__CERT"),
    ],
)
def test_a_variable_that_misses_a_setting_is_told_with_the_nearest(name: str, meant: str, tmp_path: Path) -> None:
    assert told(tmp_path, "", {name: CANARY}) == [f"{name}: is no setting; did you mean {meant}?"]


def test_a_variable_with_two_underscores_is_always_meant_for_us(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "", {"POINTSMAN_ZZZ__QQQ": "1"})
    assert line.startswith("POINTSMAN_ZZZ__QQQ: is no setting; the variables are POINTSMAN_LISTEN__DATA, ")
    assert "--config FILE" in told(tmp_path, "", {"POINTSMAN_CONFIG": "x"})[0]


@pytest.mark.parametrize(
    "name",
    [
        "POINTSMAN_GATEWAY",
        "POINTSMAN_TOKEN_FILE",
        "POINTSMAN_KEY",
        "POINTSMAN_GATEWAY_CA",
        "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS",
        "POINTSMAN_TEST_EVIDENCE",
        "LISTEN__DATA",
        "pointsman_data_dir",
    ],
)
def test_variables_of_others_are_left_alone(name: str, tmp_path: Path) -> None:
    assert load(tmp_path, "", {name: "x"}) == load(tmp_path, "")


def test_everything_that_is_wrong_is_told_at_once_in_order(tmp_path: Path) -> None:
    text = "listen: {data: x}\nkeyfile: y\nauth:\n  grpc: maybe\n  metrics: open\ndatabase_url: mysql://h/d\n"
    lines = told(tmp_path, text, {"POINTSMAN_LISTEN__CONTROL": "8781"}, listen__grpc="example.com:1")
    assert [line.partition("; ")[0] for line in lines] == [
        f"{FILE}:1: listen.data is not HOST:PORT",
        f"{FILE}:2: unknown key keyfile",
        f"{FILE}:4: auth.grpc is neither token nor none",
        f"{FILE}:5: auth.metrics is neither token nor none",
        f"{FILE}:6: database_url has no scheme that is known",
        "POINTSMAN_LISTEN__CONTROL: listen.control is not HOST:PORT",
        "--listen-grpc: listen.grpc has a name or a broken address where an IP address belongs",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b: c", f"{FILE}:1: is not valid YAML"),
        ("- a", f"{FILE}:1: the file is a list, not a mapping"),
        ("x", f"{FILE}:1: the file is text, not a mapping"),
        ("data_dir: /a\ndata_dir: /b", f"{FILE}:2: gives data_dir twice"),
    ],
)
def test_a_file_that_is_no_mapping_of_keys_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    assert told(tmp_path, text)[0].startswith(reason)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(SettingsError, match=reason):
            load_settings(path, HOME)
    (tmp_path / "x").write_bytes(b"\xff\xfea")
    with pytest.raises(SettingsError, match="UTF-16"):
        load_settings(tmp_path / "x", HOME)


def test_the_databases_password_is_in_no_way_of_printing(tmp_path: Path) -> None:
    url = f"postgresql://u:{CANARY}@h/d?password={CANARY}"
    settings = load(tmp_path, f"database_url: {url}")
    assert settings.database_url.reveal() == url
    assert CANARY not in f"{settings} {settings!r} {settings.shown()} {settings.warnings}"


def test_a_file_with_a_password_that_all_may_read_is_worth_a_warning(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f"database_url: postgresql://u:{CANARY}@h/d")
    for mode, count in ((0o644, 1), (0o640, 0)):
        os.chmod(tmp_path / FILE, mode)
        assert len(load_settings(tmp_path / FILE, HOME).warnings) == count
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o640


_WORDS = st.sampled_from(
    [*BY_PATH, "listen", "auth", "tls", "data", "grpc", "127.0.0.1:0", "[::1]:0", "none", "&a", "*a", "<<", "~"]
)
_TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.one_of(_WORDS, st.sampled_from([":", ": ", "\n", "  ", "{", "}", "[", "]", ",", "- ", "'", "\x00"]))
    ).map("".join),
)


@given(_TEXTS, st.dictionaries(st.sampled_from([key.variable for key in KEYS]), st.text(max_size=20), max_size=3))
def test_any_text_gives_settings_or_the_one_error(text: str, environ: dict[str, str]) -> None:
    descriptor = os.memfd_create("settings")
    try:
        os.write(descriptor, text.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(SettingsError):
            settings = load_settings(Path(f"/proc/self/fd/{descriptor}"), {**HOME, **environ})
            assert isinstance(settings.listen.data, Address)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("[10.0.0.0/8, 'fd00::/64']", "10.0.0.0/8, fd00::/64"),
        ("'10.0.0.0/8,fd00::/64'", "10.0.0.0/8, fd00::/64"),
        ("[]", ""),
        (f"[{', '.join(['10.0.0.0/8'] * 64)}]", ", ".join(["10.0.0.0/8"] * 64)),
    ],
)
def test_networks_may_be_a_list_or_text(text: str, networks: str, tmp_path: Path) -> None:
    assert load(tmp_path, f"direct_allowed_cidrs: {text}").shown()["direct_allowed_cidrs"] == networks


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "[a.example/8]", "['10.0.0.0/8', '']", "'10.0.0.0/8,'", "'10.0.0.0/8 x'"],
)
def test_what_is_no_network_is_refused(text: str, tmp_path: Path) -> None:
    (line,) = told(tmp_path, f"direct_allowed_cidrs: {text}")
    assert line.startswith(f"{FILE}:1: direct_allowed_cidrs holds what is no network; write it as ")
    (line,) = told(tmp_path, f"direct_allowed_cidrs: [{', '.join(['10.0.0.0/8'] * 65)}]")
    assert "has 65 networks; at most 64" in line
    (line,) = told(tmp_path, "direct_allowed_cidrs: [4]")
    assert "direct_allowed_cidrs is a list; write a list, for example" in line

"""What credential flags mean, and that no message about them repeats a key."""

import pytest

from pointsman.cli.credential_flags import (
    NotThere,
    WrongFlag,
    discover,
    read_config,
    read_credentials,
    unused_base_url,
)
from pointsman.core.provider import LONGEST_VALUE
from pointsman.core.secret import Secret
from tests.support.canary import KEY

ENVIRON = {"WORK_KEY": f" {KEY}\n", "EMPTY_KEY": "", "BLANK_KEY": "  "}


def no_input(_: str) -> str:
    raise AssertionError("standard input was read")


def read(*flags: str, may_delete: bool = False, text: str | None = None) -> dict[str, Secret]:
    return read_credentials(flags, ENVIRON, no_input if text is None else lambda _: text or "", may_delete=may_delete)


def test_a_value_stands_behind_the_first_equals_sign() -> None:
    assert read("A=b=c", "D=e") == {"A": Secret("b=c"), "D": Secret("e")}


def test_a_bare_key_reads_the_environment_without_surrounding_space() -> None:
    assert read("WORK_KEY") == {"WORK_KEY": Secret(KEY)}


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("ABSENT_KEY", "--credential ABSENT_KEY: the variable is not set here; export it, or write KEY=VALUE"),
        ("EMPTY_KEY", "--credential EMPTY_KEY: the variable is empty here; export its value, or write KEY=VALUE"),
        ("BLANK_KEY", "--credential BLANK_KEY: the variable is empty here; export its value, or write KEY=VALUE"),
    ],
)
def test_a_variable_without_a_value_is_named(flag: str, reason: str) -> None:
    with pytest.raises(NotThere) as caught:
        read(flag)
    assert str(caught.value) == reason


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("flag", ["{}", "{}=", "={}", " ={}"])
def test_a_key_in_the_wrong_place_is_not_repeated(flag: str) -> None:
    with pytest.raises(WrongFlag) as caught:
        read(flag.format(KEY))
    assert KEY not in str(caught.value)


def test_a_key_may_be_given_once() -> None:
    with pytest.raises(WrongFlag, match="WORK_KEY is given twice"):
        read("WORK_KEY", "WORK_KEY=other")


def test_an_empty_value_deletes_in_an_update_and_is_an_error_in_a_new_record() -> None:
    assert read("OLD_KEY=", may_delete=True) == {"OLD_KEY": Secret("")}
    with pytest.raises(WrongFlag, match="OLD_KEY= has no value"):
        read("OLD_KEY=")


def test_a_dash_reads_standard_input_without_its_line_end() -> None:
    assert read("A_KEY=-", "B=c", text=f"{KEY}\n") == {"A_KEY": Secret(KEY), "B": Secret("c")}


def test_standard_input_is_read_for_one_key_only_and_only_when_the_rest_is_right() -> None:
    with pytest.raises(WrongFlag, match="two credentials"):
        read("A_KEY=-", "B_KEY=-")
    with pytest.raises(NotThere, match="ABSENT_KEY"):
        read("A_KEY=-", "ABSENT_KEY")


@pytest.mark.parametrize(
    "text",
    ["", "\n", f"{KEY}\n{KEY}\n", "x" * (LONGEST_VALUE + 1)],
    ids=["nothing", "a line end", "two lines", "too long"],
)
def test_standard_input_must_hold_one_value(text: str) -> None:
    with pytest.raises(NotThere, match="A_KEY=-: standard input") as caught:
        read("A_KEY=-", text=text)
    assert KEY not in str(caught.value)


def test_standard_input_may_hold_the_longest_value() -> None:
    longest = "x" * LONGEST_VALUE
    assert read("A_KEY=-", text=longest)["A_KEY"].reveal() == longest


def test_config_is_key_and_value() -> None:
    assert read_config(["OPENAI_BASE_URL=https://models.example/v1?a=b"], may_delete=False) == {
        "OPENAI_BASE_URL": "https://models.example/v1?a=b"
    }
    assert read_config(["OPENAI_BASE_URL="], may_delete=True) == {"OPENAI_BASE_URL": ""}
    for flags in (["OPENAI_BASE_URL"], ["=x"], ["A=1", "A=2"], ["OPENAI_BASE_URL="]):
        with pytest.raises(WrongFlag):
            read_config(flags, may_delete=False)


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("key", ["OPENAI_API_KEY", "apikey", "HF_TOKEN", "SECRET", "db_password"])
def test_a_credential_is_kept_out_of_config_which_is_shown(key: str) -> None:
    with pytest.raises(WrongFlag, match="use --credential") as caught:
        read_config([f"{key}={KEY}"], may_delete=True)
    assert KEY not in str(caught.value)
    assert read_config([f"{key}="], may_delete=True) == {key: ""}


def test_a_password_in_a_url_is_kept_out_of_config_too() -> None:
    with pytest.raises(WrongFlag, match="OPENAI_BASE_URL has user info") as caught:
        read_config([f"OPENAI_BASE_URL=https://user:{KEY}@models.example/v1"], may_delete=False)
    assert KEY not in str(caught.value)
    assert read_config(["A=https://models.example/v1/@me"], may_delete=False)


@pytest.mark.parametrize("key", ["TOKENIZER", "MAX_TOKENS", "KEY_ID", "OPENAI_BASE_URL"])
def test_a_config_key_that_only_resembles_one_is_let_through(key: str) -> None:
    assert read_config([f"{key}=x"], may_delete=False) == {key: "x"}


@pytest.mark.parametrize(
    ("type_", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("nvidia", "NVIDIA_API_KEY"),
        ("openai_compatible", "OPENAI_API_KEY"),
        (" OpenAI ", "OPENAI_API_KEY"),
    ],
)
def test_discovery_takes_the_variable_of_the_type_and_no_other(type_: str, variable: str) -> None:
    environ = {name: f"{KEY}-{name}" for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "OTHER")}
    assert discover(type_, environ) == {variable: Secret(f"{KEY}-{variable}")}
    for empty in ({}, {variable: ""}, {variable: " "}):
        with pytest.raises(NotThere, match=f"found no {variable} here"):
            discover(type_, empty)


def test_discovery_of_an_unknown_type_points_to_credential() -> None:
    with pytest.raises(WrongFlag, match="knows no variable of the type mytype; use --credential KEY"):
        discover("mytype", {"OPENAI_API_KEY": KEY})


def test_a_base_url_of_the_environment_that_is_not_taken_is_noticed() -> None:
    environ = {"OPENAI_BASE_URL": "https://elsewhere.example/v1"}
    assert unused_base_url("openai", environ, {}) == "OPENAI_BASE_URL"
    assert unused_base_url("openai", environ, {"OPENAI_BASE_URL": "x"}) == ""
    assert unused_base_url("openai", {}, {}) == ""
    assert unused_base_url("anthropic", environ, {}) == ""
    assert unused_base_url("openai_compatible", {"BASE_URL": "/app"}, {}) == ""
    assert unused_base_url("openai_compatible", environ, {"BASE_URL": "mock://x"}) == ""

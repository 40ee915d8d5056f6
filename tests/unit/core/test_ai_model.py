"""What a model is called when nobody says."""

from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.ai_model import check_alias, default_alias


def test_an_alias_is_the_identifier_in_the_letters_of_names() -> None:
    made = {each: default_alias(each, "laptop", ()) for each in ("llama3.2:3b", "org/Model_1.Q4", "a b", "-:-", "ü")}
    assert made == {
        "llama3.2:3b": "llama3.2-3b",
        "org/Model_1.Q4": "org-Model_1.Q4",
        "a b": "a-b",
        "-:-": "model",
        "ü": "model",
    }


def test_what_is_taken_gets_the_runners_name_and_then_numbers() -> None:
    taken: list[str] = []
    for _ in range(4):
        taken.append(default_alias("m", "laptop", taken))
    assert taken == ["m", "m-laptop", "m-laptop-2", "m-laptop-3"]
    assert default_alias("m", "", ["m"]) == "m-2"
    assert default_alias("inference.local", "laptop", ()) == "inference.local-laptop"


@given(
    st.text(max_size=300),
    st.text("ab-._" + "0", max_size=253),
    st.integers(1, 12),
)
def test_every_alias_is_one_that_is_free_however_long_the_names_are(identifier: str, runner: str, count: int) -> None:
    taken: set[str] = set()
    for _ in range(count):
        alias = default_alias(identifier, runner, taken)
        check_alias(alias)
        assert alias not in taken
        taken.add(alias)

"""Promises and tests belong together: none of either stands alone."""

import re
from pathlib import Path

import pytest
from scripts.guarantees import guarantees_page, promises, proofs

ROOT = Path(__file__).parents[2]


def promised() -> set[str]:
    return {name for topic in promises(ROOT / "tests" / "guarantees").values() for name in topic}


def test_every_promise_has_a_test() -> None:
    assert promised() - set(proofs(ROOT / "tests")) == set()


def test_every_marker_names_a_promise() -> None:
    assert set(proofs(ROOT / "tests")) - promised() == set()


def test_every_promise_is_a_sentence() -> None:
    topics = promises(ROOT / "tests" / "guarantees")
    entries = {name: text for topic in topics.values() for name, text in topic.items()}
    assert [name for name, text in entries.items() if not text.endswith(".") or "\n" in text or len(text) > 300] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[T1]\npromise = "One."\nmore = 1\n', "hold one promise"),
        ('[t1]\npromise = "One."\n', "a letter and a number"),
        ("[T1]\n", "hold one promise"),
    ],
)
def test_an_entry_that_is_not_a_promise_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=reason):
        promises(tmp_path)


def test_a_promise_made_twice_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text('[T1]\npromise = "One."\n')
    with pytest.raises(ValueError, match="twice"):
        promises(tmp_path)


def test_the_page_lists_marked_tests_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "tests" / "guarantees").mkdir(parents=True)
    (tmp_path / "tests" / "guarantees" / "a.toml").write_text('[T1]\npromise = "One."\n[T2]\npromise = "a|b."\n')
    (tmp_path / "tests" / "test_x.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', [1])\n@pytest.mark.guarantee('T1', 'T2')\ndef test_proof(n): pass\n\n"
        "def test_other(): pass\n"
    )
    page = guarantees_page(tmp_path)
    assert "| T1 | One. | `tests/test_x.py::test_proof` |" in page
    assert "| T2 | a\\|b. | `tests/test_x.py::test_proof` |" in page
    assert "test_other" not in page


@pytest.mark.parametrize(
    ("page", "letter", "topic"), [("attempts", "A", "attempts"), ("runner-guarantees", "S", "sharing")]
)
def test_a_page_of_guarantees_names_every_promise_of_its_topic_and_no_other(page: str, letter: str, topic: str) -> None:
    text = (ROOT / f"docs/reference/{page}.md").read_text()
    assert set(re.findall(rf"\b{letter}\d+\b", text)) == set(promises(ROOT / "tests/guarantees")[topic])


def test_each_promise_about_sharing_is_proved_at_real_processes() -> None:
    tests = proofs(ROOT / "tests")
    without = [name for name in promises(ROOT / "tests/guarantees")["sharing"] if "tests/e2e/" not in str(tests[name])]
    assert without == []

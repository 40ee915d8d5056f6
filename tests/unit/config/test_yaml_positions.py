"""YAML as a tree with lines, and without its traps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.yaml_positions import (
    DEEPEST,
    LARGEST_TEXT,
    MOST_NODES,
    Document,
    Mapping,
    Node,
    Scalar,
    Sequence,
    read_document,
)


def plain(node: Node) -> object:
    """The tree as plain data, without lines."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [plain(each) for each in node.items]
    return {key: plain(value) for key, (_, value) in node.entries.items()}


def good(text: str) -> Node:
    document = read_document(text)
    assert document.problems == ()
    assert document.root is not None
    return document.root


def only_problem(text: str) -> tuple[int, str, str]:
    problems = read_document(text).problems
    assert len(problems) == 1, problems
    return problems[0].line, problems[0].reason, problems[0].next_step


def test_mappings_lists_and_values_keep_their_lines() -> None:
    root = good("# comment\na: 1\n\nb:\n  - x\n  - {c: y}\n")
    assert isinstance(root, Mapping)
    assert root.line == 2
    assert root.entries["a"][0] == 2
    line, items = root.entries["b"]
    assert line == 4
    assert isinstance(items, Sequence)
    assert [item.line for item in items.items] == [5, 6]
    assert plain(root) == {"a": "1", "b": ["x", {"c": "y"}]}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("word", "text"),
        ("'4'", "text"),
        ('"true"', "text"),
        ("! 4", "text"),
        ("!!str 4", "text"),
        ("!!int '4'", "a number"),
        ("4", "a number"),
        ("-4", "a number"),
        ("4.5", "a number"),
        ("0x1F", "a number"),
        ("1:30", "a number"),
        (".inf", "a number"),
        ("true", "true or false"),
        ("off", "true or false"),
        ("~", "nothing"),
        ("null", "nothing"),
        ("2024-01-01", "a date"),
        ("2024-99-99", "a date"),
        ("=", "text"),
        ("|\n  block", "text"),
    ],
)
def test_a_value_stays_text_and_says_what_yaml_takes_it_for(text: str, kind: str) -> None:
    root = good(f"a: {text}\n")
    assert isinstance(root, Mapping)
    value = root.entries["a"][1]
    assert isinstance(value, Scalar)
    assert value.kind == kind


def test_a_value_is_not_in_its_repr() -> None:
    assert "canary" not in repr(good("a: [sk-canary-1]\n"))


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "\ufeff", "\ufeff# c\n"])
def test_an_empty_text_is_an_empty_document(text: str) -> None:
    assert read_document(text) == Document(None)


@pytest.mark.parametrize("text", ["\ufeffa: b\r\nc: d\r\n", "a: b\rc: d\r", "a: b\nc: d", "---\na: b\nc: d\n...\n"])
def test_a_byte_order_mark_and_any_line_end_are_accepted(text: str) -> None:
    root = good(text)
    assert isinstance(root, Mapping)
    assert plain(root) == {"a": "b", "c": "d"}
    assert root.entries["c"][0] - root.entries["a"][0] == 1


def test_aliases_and_merge_keys_are_followed() -> None:
    root = good("x: &d {a: 1, b: 2}\none:\n  <<: *d\n  b: 3\ntwo: *d\nthree: {<<: [{a: 9}, *d]}\n")
    assert plain(root) == {
        "x": {"a": "1", "b": "2"},
        "one": {"a": "1", "b": "3"},
        "two": {"a": "1", "b": "2"},
        "three": {"a": "9", "b": "2"},
    }


def test_an_anchor_may_be_given_again() -> None:
    assert plain(good("- &a 1\n- *a\n- &a 2\n- *a\n")) == ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("text", "line", "reason", "next_step"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "gives a twice, first in line 1", "keep one"),
        ("{sk-canary-1: 1, sk-canary-1: 2}", 1, "gives a key twice, first in line 1", "keep one"),
        ("a:\n  - [b\nc: d\n", 3, "is not valid YAML", "check indentation"),
        ("a:\n\t- b\n", 2, "is indented with a tab", "indent with spaces"),
        ("a: b: c\n", 1, "is not valid YAML", "space behind each colon"),
        ("&a &a x\n", 1, "expected '<document start>', but found '<anchor>'", "check"),
        ("a: @b\n", 1, "is not valid YAML", "quotes"),
        ('a: "b\n', 2, "is not valid YAML", "quotes"),
        ("a: 'b'c\n", 1, "is not valid YAML", "quotes"),
        ("a: b\n---\nc: d\n", 2, "more than one YAML document", "keep one"),
        ("a: *b\n", 1, "is an alias without an anchor", "quote a value that begins with *"),
        ("a: &b [1, *b]\n", 1, "is an alias inside its own anchor", "quote"),
        ("a: !!python/name:os.system x\n", 1, "tag that is not accepted", "begins with !"),
        ("a: !!binary aGk=\n", 1, "tag that is not accepted", "begins with !"),
        ("a: !env KEY\n", 1, "tag that is not accepted", "begins with !"),
        ("a: !!set {b}\n", 1, "tag that is not accepted", "begins with !"),
        ("a: !x! b\n", 1, "is not valid YAML", "check"),
        ("? [a]\n: b\n", 1, "has a list where a key belongs", "plain words"),
        ("{a: b}: c\n", 1, "has a mapping where a key belongs", "plain words"),
        ("a: {<<: b}\n", 1, "merges text with <<", "merge a mapping"),
        ("a:\n  <<: [{b: c}, [d]]\n", 2, "merges a list with <<", "merge a mapping"),
        ("a: b\nc: \x00\n", 2, "control character", "UTF-8"),
        ("a: \x1b[0m\n", 1, "control character", "UTF-8"),
        ("a: \ud800\n", 1, "control character", "UTF-8"),
        ('a: "\\UFFFFFFFF"\n', 1, "is not valid YAML", "escapes"),
        ('a: "\\U00110000"\n', 1, "is not valid YAML", "escapes"),
    ],
)
def test_what_is_no_plain_data_is_one_problem_at_its_line(text: str, line: int, reason: str, next_step: str) -> None:
    found = only_problem(text)
    assert found[0] == line
    assert reason in found[1]
    assert next_step in found[2]


def test_every_duplicate_and_tag_is_reported_at_once() -> None:
    problems = read_document("a: 1\na: 2\nb: {c: 1, c: 2}\nd: !x y\n").problems
    assert [problem.line for problem in sorted(problems)] == [2, 3, 4]


def test_duplicates_are_reported_together_with_the_syntax_error_behind_them() -> None:
    document = read_document("a: {b: 1, b: 2}\nc: [\n")
    assert document.root is None
    assert [problem.line for problem in document.problems] == [1, 3]


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
)


def test_an_alias_bomb_is_refused() -> None:
    _, reason, _ = only_problem(BOMB)
    assert f"more than {MOST_NODES} values once its aliases are expanded" in reason


def test_a_merge_bomb_is_refused() -> None:
    lines = ["a0: &a0 {k: v}\n"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 4)}]}}\n" for i in range(1, 12)]
    assert "more than" in only_problem("".join(lines))[1]


def test_exactly_the_bound_of_values_is_accepted_and_one_more_is_not() -> None:
    # The list itself is one, and so is each x.
    assert isinstance(good(f"[{'x,' * (MOST_NODES - 1)}]"), Sequence)
    assert "more than" in only_problem(f"[{'x,' * MOST_NODES}]")[1]


def test_values_behind_aliases_count_each_time() -> None:
    # A list of 10 has size 11; the outer list is one.
    fits = (MOST_NODES - 1) // 11
    ten = f"&t [{', '.join('x' * 10)}]"
    assert isinstance(good(f"[{ten}{', *t' * (fits - 1)}]"), Sequence)
    assert "more than" in only_problem(f"[{ten}{', *t' * fits}]")[1]


def test_exactly_the_bound_of_depth_is_accepted_and_one_more_is_not() -> None:
    good("[" * DEEPEST + "]" * DEEPEST)
    assert f"deeper than {DEEPEST}" in only_problem("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))[1]
    assert "deeper" in only_problem("[" * 100_000)[1]


def test_exactly_the_bound_of_characters_is_accepted_and_one_more_is_not() -> None:
    good("a: b #".ljust(LARGEST_TEXT, "c"))
    assert "is larger than 256 KiB" in only_problem("a: b #".ljust(LARGEST_TEXT + 1, "c"))[1]


@pytest.mark.parametrize(
    "text",
    [
        "a: *sk-canary-1\n",
        "a: &sk-canary-1\n",
        "a: !sk-canary-1 b\n",
        "a: !sk!canary-1 b\n",
        "a: %sk-canary-1\n",
        "a: `sk-canary-1\n",
        "a: b: sk-canary-1\n",
        'a: "sk-canary-1\n',
        "sk-canary-1\nb: c\n",
        "%TAG !canary-1! x\n---\na: b",
        "%YAML canary-1\n---\na: b",
        'a: "\\canary-1"\n',
        "{sk-canary-1: b, sk-canary-1: c}",
    ],
)
def test_no_problem_quotes_the_text(text: str) -> None:
    assert "canary" not in repr(read_document(text).problems)


PIECES = "a|b: |: |- |  |[|]|{|}|,|&x |*x|!!str |!x |<<: |'|\"|>|? |#|%|\t|\\|\\U|999999999999|0x|~|\x85|\u2028|\x07"
YAML_PIECES = st.sampled_from([*PIECES.split("|"), "|", "\n", "\r\n", "---\n", "...\n", "\ufeff"])


@given(st.lists(YAML_PIECES, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_gives_a_document_or_problems(text: str) -> None:
    document = read_document(text)
    if document.root is None:
        assert all(problem.reason and problem.next_step for problem in document.problems)
    else:
        plain(document.root)
    lines = len(text.splitlines()) + 1
    assert all(0 <= problem.line <= lines for problem in document.problems)

"""What a rule refuses stays refused however it is written again, and what it redacts is not there in another form."""

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.policy import Effect, Rule
from pointsman.routing.policy import PASSED, Decision, Unsearchable, evaluate
from pointsman.routing.text_patterns import folded, plain
from pointsman.wire.headers import is_utf8
from pointsman.wire.output_bound import read_output_bound
from tests.support.policies import CHAT, compiled, decide, rule
from tests.unit.routing.test_policy import NO_SHELL, SHORT, TOOLS
from tests.unit.routing.test_policy_text import HIDE, SECRET, TEXTS
from tests.unit.wire.test_json_strings import written

LUCK = st.builds(random.Random, st.integers(0, 2**40))  # of one draw: these tests draw hundreds
INVISIBLE = "\u00ad\u200b\u200d\u2060\ufeff\u034f\U000e0041\0\x01\b\x7f\x9f"
WORDS = ("secret", "shell", "bash")


def disguised(text: str, luck: random.Random, *, is_json: bool = False) -> str:
    """The same for readers, with its words in other characters."""
    for word in WORDS:
        if word in text.lower():
            at = text.lower().index(word)
            letters = [_letter(each, luck, is_json=is_json) for each in text[at : at + len(word)]]
            between = [luck.choice(["", "", luck.choice(INVISIBLE[:7] if is_json else INVISIBLE)]) for _ in letters]
            made = "".join(pair for both in zip(letters, between, strict=True) for pair in both)
            return text[:at] + made + text[at + len(word) :]
    return text


def _letter(letter: str, luck: random.Random, *, is_json: bool) -> str:
    forms = [
        letter,
        letter.upper(),
        chr(ord(letter) - 0x21 + 0xFF01),
        {"s": "\u017f", "h": "\u210e"}.get(letter, letter),
    ]
    return luck.choice([*forms, f"\\u{ord(letter):04x}"] if is_json else forms)


def respelled(value: Any, luck: random.Random, key: str = "") -> Any:
    """Members in another order and case, texts in parts, words in other characters."""
    if isinstance(value, dict):
        members = list(value.items())
        luck.shuffle(members)
        made: dict[str, Any] = {}
        for name, each in members:
            again = _name(name, luck)
            made[name if again in made or again in value else again] = respelled(each, luck, name)
        return made
    if isinstance(value, list):
        return [respelled(each, luck, key if isinstance(each, str) else "") for each in value]
    if isinstance(value, str) and key not in ("type", "role"):
        value = disguised(value, luck, is_json=key == "arguments")
        return _in_parts(value, luck) if key == "content" and luck.random() < 0.5 else value
    return value


def _name(name: str, luck: random.Random) -> str:
    return luck.choice([name, name, name.upper(), name.title()]) if name.isascii() else name


def _in_parts(text: str, luck: random.Random) -> list[Any]:
    cut = luck.randint(0, len(text))
    parts: list[Any] = [{"type": "text", "text": text[:cut]}, {"type": "text", _name("text", luck): text[cut:]}]
    if luck.random() < 0.3:
        parts = [text[:cut], [text[cut:]]]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    return [*parts[:1], image, *parts[1:]]


def outcome(body: bytes, *rules: Rule, dialect: str = CHAT) -> Decision | None:
    """None for a body that is refused since it cannot be searched."""
    with contextlib.suppress(Unsearchable):
        return decide(body, *rules, dialect=dialect)
    return None


@pytest.mark.guarantee("P2")
@given(st.sampled_from(TEXTS), LUCK)
def test_a_text_is_refused_however_its_request_is_written_again(row: Any, luck: random.Random) -> None:
    dialect, body, _ = row
    decision = outcome(written(respelled(body, luck), luck).encode("utf-8", "surrogatepass"), SECRET, dialect=dialect)
    assert decision is None or decision.blocked_by == "secret"


@pytest.mark.guarantee("P3")
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3), LUCK)
def test_what_is_redacted_is_left_in_no_form_and_redacting_again_changes_nothing(
    rows: list[Any], luck: random.Random
) -> None:
    body: dict[str, Any] = {}
    for _, each, _ in rows:
        for name, value in each.items():
            body[name] = body[name] + value if isinstance(body.get(name), list) and isinstance(value, list) else value
    texts = [{"content": [{"text": "a secret"}, {"text": disguised("b secret c", luck)}]} for _ in range(2)]
    again = {**respelled(body, luck), "messages2": texts, "stop": disguised("secret", luck) + " secret"}
    decision = outcome(written(again, luck).encode("utf-8", "surrogatepass"), HIDE)
    if decision is None:
        return
    assert decision.body is not None
    json.loads(decision.body)
    assert outcome(decision.body, SECRET) == outcome(decision.body, HIDE) == PASSED


@pytest.mark.guarantee("P2")
@given(st.sampled_from(TOOLS), LUCK)
def test_a_tool_is_refused_however_its_request_is_written_again(row: Any, luck: random.Random) -> None:
    dialect, body, _ = row
    again = written(respelled(body, luck), luck).encode()
    for each in (NO_SHELL, rule("no-shell", allowed_tools=("read",))):
        decision = outcome(again, each, dialect=dialect)
        assert decision is None or decision.blocked_by == "no-shell"


BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens")
NUMBERS = st.integers(101, 2**70) | st.floats(101, 1e308) | st.integers(101, 10**6).map(float)


@pytest.mark.guarantee("P2")
@given(st.sampled_from(BOUNDS), NUMBERS, LUCK, st.booleans())
def test_no_spelling_of_a_number_asks_for_more_than_is_allowed_or_reserved(
    name: str, number: float, luck: random.Random, twice: bool
) -> None:
    said = luck.choice([json.dumps(number), f"{number:e}", f"{float(number)!r}", f'"{number}"', f"[{number!r}]"])
    spelled = luck.choice(
        [name, name.upper(), name.title(), name.replace("k", "\u212a"), f"\\u{ord(name[0]):04x}{name[1:]}"]
    )
    members = [f'"{spelled}":{said}', *(['"max_tokens":1'] if twice or name != "max_tokens" else [])]
    luck.shuffle(members)
    body = f"{{{','.join(members)}}}".encode()
    decision = outcome(body, SHORT)
    assert decision is None or decision.blocked_by == "short"
    reserved = read_output_bound(body).tokens
    if "[" not in said and len(said) <= 32:
        assert reserved is not None
        assert reserved >= min(int(float(said.strip('"'))), 1 << 40)


@pytest.mark.guarantee("P2")
@given(st.sampled_from(["logit_bias", "seed", "x-Kelvin"]), LUCK)
def test_a_denied_field_is_refused_in_every_case_and_by_every_escape(name: str, luck: random.Random) -> None:
    spelled = "".join(
        luck.choice([each, each.upper(), each.lower(), {"k": "\u212a", "s": "\u017f"}.get(each, each)]) for each in name
    )
    body = written({"model": "fast", spelled: 1}, luck).encode()
    assert decide(body, rule("plain", denied_fields=(name,))).blocked_by == "plain"


@given(st.text())
def test_what_readers_make_of_a_text_or_a_name_is_the_same_of_what_they_made(text: str) -> None:
    assert plain(plain(text)) == plain(text)
    assert folded(folded(text)) == folded(text) == folded(plain(text))


PREFIXES: list[bytes] = [b"\xef\xbb\xbf", b"\0", b"[", b"\x1e", b"\xff\xfe", b"//\n", b"{}\n"]


@pytest.mark.guarantee("P2")
@pytest.mark.parametrize("before", PREFIXES)
@pytest.mark.parametrize("effect", [Effect.BLOCK, Effect.REDACT])
def test_what_some_reader_might_take_for_json_is_refused_unsearched(before: bytes, effect: Effect) -> None:
    body = b'{"messages":[{"content":"secret"}]}'
    each = rule(effect=effect, pattern="secret")
    for text in (before + body, body + before, body.decode().encode("utf-16"), body + b'{"model":"x"}'):
        with pytest.raises(Unsearchable):
            decide(text, each)


@pytest.mark.parametrize(
    ("content_type", "is_read"),
    [
        (b"", True),
        (b"application/json", True),
        (b"application/json; charset=utf-8", True),
        (b'Application/JSON;Charset="UTF8" ; x=y', True),
        (b"application/json;charset=us-ascii", True),
        (b"application/json; charset=utf-7", False),
        (b"application/json; charset=utf-16", False),
        (b"application/json; charset=utf-8, application/json; charset=utf-7", False),
        (b"application/json; charset=utf-8; charset=utf-7", False),
        (b"application/json; charset*=utf-7''", False),
        (b"application/json; charset = utf-7", False),
        (b"application/json; charset=utf-8-sig", False),
        (b"application/json; charset=unicode_escape", False),
    ],
)
def test_a_body_that_its_reader_would_decode_otherwise_is_refused(content_type: bytes, is_read: bool) -> None:
    assert is_utf8(content_type) is is_read
    policy, body = compiled(rule(effect=Effect.REDACT, pattern="x")), b'{"messages":[{"content":"+AHM-ecret"}]}'
    assert policy is not None
    with contextlib.nullcontext() if is_read else pytest.raises(Unsearchable, match="charset"):
        evaluate(policy, body, content_type=content_type)

"""How much of a conversation is read, to the byte and the part; and that several are read at once, each by itself."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.conversation import MOST_BYTES, MOST_COMMAS, MOST_PARTS, NotUnderstood, read_conversation
from pointsman.wire.json_model import members

_OPENING, _CLOSING = b'{"messages":[{"role":"user","content":"', b'"}]}'


def _said(content: bytes) -> bytes:
    return _OPENING + content + _CLOSING


def _word(body: bytes) -> str:
    try:
        read_conversation(body, P.CHAT_COMPLETIONS)
    except NotUnderstood as error:
        return error.word
    return ""


@pytest.mark.parametrize(("more", "word"), [(-1, ""), (0, ""), (1, "too_large")])
def test_a_conversation_is_read_up_to_so_many_bytes(more: int, word: str) -> None:
    assert _word(_said(b"x" * (MOST_BYTES + more - len(_said(b""))))) == word


@pytest.mark.parametrize(("more", "word"), [(-1, ""), (0, ""), (1, "too_many_parts")])
def test_a_conversation_is_read_up_to_so_many_commas(more: int, word: str) -> None:
    assert _word(_said(b"," * (MOST_COMMAS + more - _said(b"").count(b",")))) == word


@pytest.mark.parametrize(("more", "word"), [(-1, ""), (0, ""), (1, "too_many_parts")])
def test_a_conversation_is_read_up_to_so_many_parts(more: int, word: str) -> None:
    messages = b",".join([b'{"role":"user"}'] * (MOST_PARTS + more))
    assert _word(b'{"messages":[%b]}' % messages) == word


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.alone
@pytest.mark.usefixtures("often")
def test_bodies_that_are_read_at_the_same_time_are_each_read_by_itself() -> None:
    names = [f"k{number}" for number in range(DEFAULT_LIMITS.json_keys - 1)] + ["messages"]
    keys = b",".join(b'"%b":0' % name.encode() for name in names[:-1])
    parts = b",".join([b'{"role":"user"}'] * (MOST_PARTS - 1))
    body = b'{%b,"messages":[%b]}' % (keys, parts)
    with ThreadPoolExecutor(3) as threads:
        words = [threads.submit(_word, body) for _ in range(4)]
        found = [threads.submit(members, body, DEFAULT_LIMITS.json_keys) for _ in range(4)]
        assert [each.result() for each in words] == [""] * 4
        assert all([name for name, _ in each.result()] == names for each in found)

"""The model splice: one value changes, no other byte does, and nothing dodges it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import MalformedRequest
from pointsman.wire.json_model import splice_model

MODEL = b'"real"'


def splice(body: bytes, key_limit: int = 10_000) -> bytes:
    return b"".join(splice_model(body, MODEL, key_limit))


@pytest.mark.guarantee("J2", "J5")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"x"}', b'{"model":"real"}'),
        (b'{"model" : {"a":[1]} , "b":2}', b'{"model" : "real" , "b":2}'),
        (b'{"a":1.10,"model":null}', b'{"a":1.10,"model":"real"}'),
        (b'\r\n\t {"z":1e999,"model":[] }\n', b'\r\n\t {"z":1e999,"model":"real" }\n'),
        (b"{}", b'{"model":"real"}'),
        (b'{ "a" : "\\u00e9" }', b'{"model":"real", "a" : "\\u00e9" }'),
        (b'{"nested":{"model":"x"}}', b'{"model":"real","nested":{"model":"x"}}'),
        (b'{"nested":[{"model":"x"}],"model":"y"}', b'{"nested":[{"model":"x"}],"model":"real"}'),
        (b'{"a":"model","b":"\\"model\\":1"}', b'{"model":"real","a":"model","b":"\\"model\\":1"}'),
        (b'{"mod\\u0065l":"x"}', b'{"mod\\u0065l":"real"}'),
        (b'{"a":1,"a":2,"model":3,"a":4}', b'{"a":1,"a":2,"model":"real","a":4}'),
        (b'{"n":123456789012345678901234567890,"model":1}', b'{"n":123456789012345678901234567890,"model":"real"}'),
        ('{"ä":"ö","model":"ü"}'.encode(), '{"ä":"ö","model":"real"}'.encode()),
        (b'{"Model":1,"model ":2}', b'{"model":"real","Model":1,"model ":2}'),
        (b'{"a\\"}":"}{","model":1}', b'{"a\\"}":"}{","model":"real"}'),
    ],
)
def test_only_the_top_level_model_changes(body: bytes, expected: bytes) -> None:
    assert splice(body) == expected


@pytest.mark.guarantee("J2")
@pytest.mark.parametrize("body", [b"", b"   ", b"hello", b"--boundary\r\n", b"model=x", b'"text"', b"1", b"\xff\xfe"])
def test_what_is_not_json_passes_unchanged(body: bytes) -> None:
    assert splice(body) == body


@pytest.mark.guarantee("J1", "J2", "J3", "J4", "J5")
@pytest.mark.parametrize(
    "body",
    [
        b'{"model":1,"model":2}',
        b'{"model":1,"a":0,"mod\\u0065l":2}',
        b'{"\\u006dodel":1,"model":2}',
        b"[]",
        b'[{"model":1}]',
        b'{"model":1',
        b'{"model":1}}',
        b'{"model":1}x',
        b'{"model":1}\x00',
        b"{'model':1}",
        b'{"model":1,}',
        b'{"model":NaN}',
        b'{"a":Infinity}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\x01"}',
        b'{"a":01}',
        b'{"a":/**/1}',
        b'\xef\xbb\xbf{"model":1}',
        b"\xef\xbb\xbf  {}",
        '{"model":1}'.encode("utf-16"),
        '{"model":1}'.encode("utf-16-le"),
        '{"model":1}'.encode("utf-16-be"),
        '{"model":1}'.encode("utf-32"),
        '{"model":1}'.encode("utf-32-be"),
        "\u3000{}".encode(),
        b"\x0c{}",
        b"\xff{}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b" " * 70_000 + b"x",
    ],
)
def test_what_could_dodge_the_model_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        splice(body)


@pytest.mark.limit("json_keys")
@pytest.mark.parametrize("count", [7, 8])
def test_top_level_keys_have_a_limit_duplicates_included(count: int) -> None:
    body = b"{" + b",".join([b'"a":1'] * (count - 1) + [b'"model":2']) + b"}"
    if count > 7:
        with pytest.raises(MalformedRequest, match="too many"):
            splice(body, 7)
    else:
        assert splice(body, 7).endswith(b'"model":"real"}')


@pytest.mark.limit("json_key_characters")
@pytest.mark.parametrize("extra", [0, 1])
def test_the_keys_of_a_large_body_have_a_limit_together(extra: int) -> None:
    long = b'"' + b"\\n" * (256 * 1024 - len("model") - 7 + extra) + b'":1,"1234567":2'
    body = b'{"model":1,' + long + b"}"
    if extra:
        with pytest.raises(MalformedRequest, match="too long"):
            splice(body)
    else:
        assert splice(body).startswith(b'{"model":"real",')


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6) | st.just("model"), JSON_VALUES, max_size=6)


@pytest.mark.guarantee("J2", "J5")
@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_any_object_keeps_all_but_its_model(value: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    try:
        body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:  # a lone surrogate, which the splice refuses as well
        return
    try:
        spliced = splice(body)
    except MalformedRequest:
        assert any(0xD800 <= ord(c) <= 0xDFFF for c in json.dumps(value, ensure_ascii=False))
        return
    assert json.loads(spliced) == {**value, "model": "real"}
    if "model" in value:
        at = spliced.index(MODEL)
        assert body.startswith(spliced[:at])
        assert body.endswith(spliced[at + len(MODEL) :]) or value["model"] == "real"


@pytest.mark.guarantee("J2")
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,model\\u0065 \n1', max_size=40).map(str.encode))
def test_any_body_is_spliced_passed_or_refused(body: bytes) -> None:
    try:
        spliced = splice(body)
    except MalformedRequest:
        return
    if spliced != body:
        assert json.loads(spliced)["model"] == "real"


@given(OBJECTS)
def test_any_object_is_spliced_the_same_whether_it_is_small_or_large(value: dict[str, object]) -> None:
    small = {**value, "pad": ""}
    large = {**value, "pad": "x" * 40_000}
    try:
        bodies = [json.dumps(each, ensure_ascii=False).encode() for each in (small, large)]
    except UnicodeEncodeError:
        return
    one, other = (splice(body) for body in bodies)
    assert other.replace(b"x" * 40_000, b"") == one

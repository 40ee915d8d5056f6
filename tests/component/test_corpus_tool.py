"""The tool that runs a corpus: it must see a request that gets through, and must not cry over one that does not."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.__main__ import judge
from tests.corpus.lane import Result
from tests.corpus.rows import AIMED, AS_IT_IS, WITH_HOST, BadCorpus, Row, aims, read_corpus

STOPPED = {"haproxy": "rej400", "nginx": "rej400"}
SOUND = b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n"


def entry(name: str, raw: bytes, verdict: str, **references: str) -> str:
    return json.dumps(
        {"src": "own", "name": name, "raw": base64.b64encode(raw).decode(), "verdict": verdict, **references}
    )


REFUSED = [
    entry(
        "a length and a coding",
        SOUND[:-2] + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "reject",
        **STOPPED,
    ),
    entry("a folded field", SOUND[:-2] + b"X: 1\r\n 2\r\n\r\n", "reject", **STOPPED),
    entry("no version", b"GET /a\r\n\r\n", "reject", **STOPPED),
    entry("a bad size", SOUND[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", "reject", **STOPPED),
    entry("no host, signed length", b"POST /a HTTP/1.1\r\nContent-Length: +1\r\n\r\na", "reject", **STOPPED),
]
FORWARDED = [
    entry("a sound one", SOUND, "accept", haproxy="fwd1", nginx="fwd1"),
    entry("two sound ones", SOUND.replace(b"/a", b"/v1/models") * 2, "accept", haproxy="fwd2", nginx="fwd2"),
    entry("a matter of taste", SOUND[:-2] + b"X: \x80\r\n\r\n", "any", haproxy="fwd1", nginx="fwd1"),
]


def run(tmp_path: Path, lines: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "tests.corpus", str(file), "--lanes", "1", *options]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=50, check=False)


def test_rows_that_are_refused_as_they_must_be_are_no_news(tmp_path: Path) -> None:
    done = run(tmp_path, REFUSED + FORWARDED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "8 rows" in done.stdout
    assert "5 must be refused: 0 got through" in done.stdout
    assert "own two sound ones" in done.stdout  # the second has another host, so it is not ours to forward


def test_a_row_that_gets_through_is_listed_and_is_status_1(tmp_path: Path) -> None:
    wrong = entry("said to be bad", SOUND, "reject", **STOPPED)
    done = run(tmp_path, [*REFUSED[:2], wrong], "-o", "json")
    assert done.returncode == 1
    results: list[dict[str, Any]] = json.loads(done.stdout)
    through = [result for result in results if result["judgement"] == "got through"]
    assert [(result["row"], result["sent"], result["ours"], result["upstream"]) for result in through] == [
        (3, AIMED, "fwd1", 1)
    ]
    assert {result["ours"] for result in results if result["row"] < 3} == {"rej400"}


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n", '{"name": "x", "raw": "!!", "verdict": "any"}\n', "[1]\n"])
def test_a_file_that_is_no_corpus_is_one_line_and_status_2(tmp_path: Path, text: str) -> None:
    done = run(tmp_path, [text])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("corpus: ")
    assert done.stderr.count("\n") == 1


def test_a_row_is_aimed_at_a_served_path_only_when_its_line_is_sound() -> None:
    def sent(raw: bytes) -> dict[str, bytes]:
        return aims(Row(1, "", raw, "any", ()))

    assert sent(SOUND)[AIMED] == b"POST /v1/chat/completions HTTP/1.1\r\nHost: inference.local\r\n\r\n"
    assert sent(b"GET /a HTTP/1.0\r\n\r\nx")[AIMED] == b"POST /v1/chat/completions HTTP/1.0\r\n\r\nx"
    assert (
        sent(b"GET /a HTTP/1.0\r\n\r\nx")[WITH_HOST]
        == b"POST /v1/chat/completions HTTP/1.0\r\nHost: inference.local\r\n\r\nx"
    )
    assert b"Host: a@b" in sent(SOUND.replace(b"example.com", b"a@b"))[AIMED]
    for raw in (
        b"GET  /a HTTP/1.1\r\n\r\n",
        b"GET * HTTP/1.1\r\n\r\n",
        b"GET a HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\n\n",
        b"",
    ):
        assert list(sent(raw)) == [AS_IT_IS]


@pytest.mark.parametrize(
    ("verdict", "haproxy", "statuses", "ended", "upstream", "judgement"),
    [
        ("reject", "rej400", (400,), True, 0, ""),
        ("reject", "rej400", (), True, 0, ""),
        ("reject", "rej400", (), False, 0, "got through"),
        ("reject", "rej400", (400,), True, 1, "got through"),
        ("reject", "rej400", (200,), False, 1, "got through"),
        ("reject", "fwd1", (200,), False, 1, "look"),
        ("reject", "fwd1", (400,), True, 0, ""),
        ("accept", "fwd1", (200,), False, 1, ""),
        ("accept", "fwd1", (400,), True, 0, "look"),
        ("accept", "fwd2", (200,), False, 1, "look"),
        ("accept", "rej400", (400,), True, 0, ""),
        ("any", "rej400", (200,), False, 1, "look"),
        ("any", "fwd1", (400,), True, 0, ""),
    ],
)
def test_a_result_is_judged_by_source_and_references(
    verdict: str, haproxy: str, statuses: tuple[int, ...], ended: bool, upstream: int, judgement: str
) -> None:
    row = Row(1, "", SOUND, verdict, (("haproxy", haproxy),))
    assert judge(Result(row, AIMED, statuses, ended, upstream)) == judgement


def test_lines_of_a_corpus_are_named_when_they_are_broken(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(FORWARDED[0] + "\n\n{}\n")
    with pytest.raises(BadCorpus, match=r":3: no 'name'|:3: no 'raw'"):
        read_corpus(file)

"""Every error of ours can be written down as an answer."""

from collections.abc import Iterator

import pytest

import pointsman.core.model_errors  # noqa: F401  # so that all classes are there
from pointsman.core.errors import RouterError
from pointsman.wire.response import json_answer


def classes(base: type[RouterError]) -> Iterator[type[RouterError]]:
    yield base
    for each in base.__subclasses__():
        yield from classes(each)


@pytest.mark.parametrize("status", sorted({each.status for each in classes(RouterError)}))
def test_the_status_of_every_error_has_its_words(status: int) -> None:
    line = json_answer(status, b"{}", b"", keep_alive=True).split(b"\r\n")[0]
    assert line.startswith(b"HTTP/1.1 %d " % status)
    assert len(line) > len(b"HTTP/1.1 508 ")

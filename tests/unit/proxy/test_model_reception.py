"""What a client of the data listener is told of coming back."""

import time

import pytest

from pointsman.core.errors import RouterError
from pointsman.core.model_errors import NoProviderAvailable
from pointsman.core.model_table import ModelAccess
from pointsman.core.runner_errors import RunnerError
from pointsman.proxy.model_reception import Models


def head_lines(wait: float | None, protocol: str) -> list[bytes]:
    return lines_of(NoProviderAvailable(wait), protocol)


def lines_of(error: RouterError, protocol: str = "openai_chat_completions") -> list[bytes]:
    models = Models(ModelAccess, time.time, is_open=True)
    answer = models.error_answer(error, "r1", 2, protocol=protocol, keep_alive=True)
    return answer.partition(b"\r\n\r\n")[0].split(b"\r\n")


@pytest.mark.parametrize("protocol", ["openai_chat_completions", "anthropic_messages"])
@pytest.mark.parametrize(("wait", "told", "may_wait"), [(59.1, 60, True), (60.0, 60, True), (60.1, 61, False)])
def test_a_library_is_told_not_to_sleep_for_more_than_a_minute(
    protocol: str, wait: float, told: int, may_wait: bool
) -> None:
    lines = head_lines(wait, protocol)
    assert b"retry-after: %d" % told in lines
    assert (b"x-should-retry: false" not in lines) is may_wait


def test_where_nobody_can_tell_when_to_come_back_nothing_is_said_of_it() -> None:
    assert not [line for line in head_lines(None, "anthropic_messages") if b"retry" in line]


@pytest.mark.parametrize(
    ("code", "may_pass"),
    [
        ("runner_offline", True),
        ("runner_busy", True),
        ("runner_upstream_error", True),
        ("runner_upstream_unavailable", True),
        ("runner_upstream_read_error", True),
        ("runner_proxy_error", True),
        ("runner_proxy_timeout", False),
        ("runner_frame_too_large", False),
        ("runner_response_limit", False),
    ],
)
def test_a_library_does_not_make_a_runners_model_do_in_vain_what_it_did_in_vain(code: str, may_pass: bool) -> None:
    told = [line for line in lines_of(RunnerError(code)) if b"retry" in line]
    assert told == ([] if may_pass else [b"x-should-retry: false"])

"""One line that says why a child failed, out of what it left behind."""

import signal

import pytest

from pointsman.engine.diagnosis import first_complaint, how_it_ended

TRUNCATED = """\
0.00.088.858 E llama_model_load: error loading model: tensor 'blk.16' data is not within the file bounds
0.00.088.880 E llama_model_load_from_file_impl: failed to load model
0.00.118.369 E srv          init: exiting due to model loading error
"""


def test_the_first_error_is_the_reason_and_what_follows_is_left_out() -> None:
    assert first_complaint(TRUNCATED) == "tensor 'blk.16' data is not within the file bounds"


def test_warnings_and_other_noise_before_the_error_are_not_the_reason() -> None:
    noise = "0.00.000.001 W srv init: a warning\nsomething else: it said\n"
    assert first_complaint(noise + TRUNCATED) == "tensor 'blk.16' data is not within the file bounds"


def test_the_name_of_the_function_and_its_subsystem_are_not_part_of_the_reason() -> None:
    line = "0.00.003.753 E srv         start: couldn't bind HTTP server socket, hostname: engine.sock, port: 0\n"
    assert first_complaint(line) == "couldn't bind HTTP server socket, hostname: engine.sock, port: 0"


@pytest.mark.parametrize("messages", ["", "Traceback: of somebody else\n", "0.00.1 I srv start: all is well\n"])
def test_a_log_without_an_error_gives_no_reason(messages: str) -> None:
    assert first_complaint(messages) == ""


@pytest.mark.parametrize("length", [299, 300, 301])
def test_a_reason_has_at_most_three_hundred_characters(length: int) -> None:
    assert len(first_complaint(f"0.00.1 E load: {'x' * length}\n")) == min(length, 300)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "it did not answer in time"),
        (0, "it ended with status 0"),
        (3, "it ended with status 3"),
        (-signal.SIGSEGV, "it was killed by SIGSEGV"),
        (-signal.SIGKILL, "it was killed by SIGKILL; the system may have run out of memory"),
        (
            -signal.SIGILL,
            "it was killed by SIGILL; this processor lacks an instruction that the installed llama.cpp uses",
        ),
        (-1000, "it was killed by signal 1000"),
    ],
)
def test_an_exit_status_is_put_into_words(status: int | None, said: str) -> None:
    assert how_it_ended(status) == said

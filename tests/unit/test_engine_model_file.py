"""What is noticed about a model file before anything is started."""

import os
from pathlib import Path

import pytest

from pointsman.engine.model_file import check_model_file


def test_a_file_that_begins_with_the_magic_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    check_model_file(path)


@pytest.mark.parametrize("content", [b"", b"GGU", b"gguf", b"GGML\x03", b"\x7fELF"])
def test_a_file_that_begins_otherwise_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.gguf is not a GGUF file"):
        check_model_file(path)


def test_a_missing_file_and_a_path_through_a_file_are_refused_with_the_system_s_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.gguf cannot be read: No such file or directory"):
        check_model_file(tmp_path / "m.gguf")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be read: Not a directory"):
        check_model_file(tmp_path / "file" / "m.gguf")


def test_a_directory_and_a_pipe_are_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(ValueError, match="is not a file"):
            check_model_file(path)

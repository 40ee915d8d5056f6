"""What can be said of a model file before llama.cpp sees it."""

from pathlib import Path

_MAGIC = b"GGUF"


def check_model_file(path: Path) -> None:
    """Raises ValueError, with a reason for the operator, unless the file can be read and begins as a GGUF file does."""
    if path.exists() and not path.is_file():  # to open a pipe would wait for its writer
        raise ValueError(f"the model file {path} is not a file")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ValueError(f"the model file {path} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise ValueError(f"the model file {path} is not a GGUF file")

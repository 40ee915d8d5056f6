"""What can be said of a model file before llama.cpp sees it."""

from pathlib import Path

_MAGIC = b"GGUF"


def check_model_file(path: Path) -> None:
    """Raises ValueError, with a reason for the operator, unless the file exists and begins as a GGUF file does."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ValueError(f"the model file {path} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise ValueError(f"the model file {path} is not a GGUF file")

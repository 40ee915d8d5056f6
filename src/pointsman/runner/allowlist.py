"""What the operator approved: which models a gateway may ask for, each on one server of this machine.

It is the last word. A gateway that was taken over still reaches nothing that is not in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pointsman.core.runner_endpoint import RunnerEndpoint, parse_runner_endpoint
from pointsman.runner.private_file import NoSuchFile, PrivateFileError, read_private, write_private
from pointsman.wire.runner_body import names_model
from pointsman.wire.runner_frames import ModelRequest

FILE_NAME = "allowlist.json"
MOST_MODELS = 64
"""Of one runner (DESIGN section 7)."""
_LONGEST_TEXT = 256
_VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class ApprovedModel:
    """A gateway's name for a model, where it is, and what its server calls it."""

    model_id: str
    endpoint: RunnerEndpoint
    model_identifier: str


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model_id: str
    base_url: str
    model_identifier: str


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    models: list[_Entry]


_DECODER = msgspec.json.Decoder(_Document, strict=True)


def read_allowlist(path: Path) -> tuple[ApprovedModel, ...]:
    """All of it, or PrivateFileError: one entry that is wrong makes all of it suspect. No file approves nothing."""
    try:
        data = read_private(path)
    except NoSuchFile:
        return ()
    try:
        document = _DECODER.decode(data)
        models = tuple(_approved(entry) for entry in document.models)
        if document.version != _VERSION:
            raise ValueError(f"is of a version other than {_VERSION}")
        if len(models) > MOST_MODELS:
            raise ValueError(f"approves more than {MOST_MODELS} models")
        if len({model.model_id for model in models}) != len(models):
            raise ValueError("has a model twice")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _corrupt(path, "is not an allowlist") from None
    except ValueError as error:
        raise _corrupt(path, str(error)) from None
    return models


def _corrupt(path: Path, reason: str) -> PrivateFileError:
    return PrivateFileError(f"{path}: {reason}; move it away, then approve again by 'pointsman runner models'")


def _approved(entry: _Entry) -> ApprovedModel:
    for text in (entry.model_id, entry.model_identifier):
        if not 0 < len(text) <= _LONGEST_TEXT or not text.isprintable():
            raise ValueError("names a model by something that is no name")
    try:
        endpoint = parse_runner_endpoint(entry.base_url)
    except ValueError as error:
        raise ValueError(f"has an address that {error}") from None
    return ApprovedModel(entry.model_id, endpoint, entry.model_identifier)


def approve(path: Path, added: ApprovedModel) -> None:
    """Add one, in the place of what was known of it. Raises PrivateFileError, also for a file that is corrupt."""
    place = (added.endpoint, added.model_identifier)
    kept = [
        model
        for model in read_allowlist(path)
        if model.model_id != added.model_id and (model.endpoint, model.model_identifier) != place
    ]
    if len(kept) >= MOST_MODELS:
        raise PrivateFileError(f"{path}: approves {MOST_MODELS} models, the most of one runner; remove one from it")
    _write(path, sorted([*kept, added]))


def clear(path: Path) -> None:
    """Approve nothing any more, whatever is there. Raises PrivateFileError."""
    _write(path, [])


def _write(path: Path, models: list[ApprovedModel]) -> None:
    entries = [_Entry(model.model_id, model.endpoint.url, model.model_identifier) for model in models]
    write_private(path, msgspec.json.format(msgspec.json.encode(_Document(_VERSION, entries)), indent=2) + b"\n")


class Allowlist:
    """Answers for each request from the file as it is then: a change counts at once."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """`say` takes a line for the operator."""
        self._path = path
        self._say = say
        self._said = ""

    def allows(self, request: ModelRequest) -> bool:
        """Whether id, address and model are, all three, those of one approved model."""
        try:
            models = read_allowlist(self._path)
            endpoint = parse_runner_endpoint(request.base_url)
        except PrivateFileError as error:
            self._tell(f"every request is refused: {error}")
            return False
        except ValueError:
            return False
        self._said = ""
        body = bytes(request.body)
        return any(
            model.model_id == request.model_id
            and model.endpoint == endpoint
            and names_model(body, model.model_identifier)
            for model in models
        )

    def _tell(self, line: str) -> None:
        if line != self._said:  # not for each request again
            self._said = line
            self._say(line)

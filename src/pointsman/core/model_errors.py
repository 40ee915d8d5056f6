"""What the data listener refuses besides what the door does: its clients name models, and may have keys.

`told` is what a client hears; it never holds more of the request than a short model name.
"""

from typing import ClassVar

from pointsman.core.errors import RequestRejected


class ListenerError(RequestRejected):
    """Base; `code` is the word that clients' libraries look at."""

    code: ClassVar[str] = ""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


class UnknownPath(ListenerError):
    """A path that the data listener does not serve."""

    status = 404
    text = "unknown path"
    code = "unknown_url"


class NoSuchModel(ListenerError):
    """No route of the caller's has that name."""

    status = 404
    text = "the model does not exist"
    code = "model_not_found"


class InvalidKey(ListenerError):
    """No key, or none that is valid."""

    status = 401
    text = "invalid key"
    code = "invalid_api_key"

"""What can go wrong with a request to the control plane. The text is for its caller and ends in what to do next.

gRPC status and HTTP status are listed here, once; `gateway` translates.
"""

from typing import ClassVar


class ControlError(Exception):
    """Base. Its text never holds a credential."""

    code: ClassVar[str] = "INTERNAL"
    """Name of the gRPC status."""
    http_status: ClassVar[int] = 500

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InvalidRequest(ControlError):
    """The request cannot be right whatever is stored."""

    code = "INVALID_ARGUMENT"
    http_status = 400


class NotFound(ControlError):
    """What it names does not exist."""

    code = "NOT_FOUND"
    http_status = 404


class AlreadyExists(ControlError):
    """What it would create exists."""

    code = "ALREADY_EXISTS"
    http_status = 409


class NotPossibleNow(ControlError):
    """It would be right if something else were different: another record, or the upstream."""

    code = "FAILED_PRECONDITION"
    http_status = 409


class DefinedInFile(NotPossibleNow):
    """The record is the configuration file's."""

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {name} is defined in the gateway's configuration file; change it there, or choose another name"
        )


class Unauthenticated(ControlError):
    """No token, or none that is valid."""

    code = "UNAUTHENTICATED"
    http_status = 401


class NotPermitted(ControlError):
    """A valid token that may not do this."""

    code = "PERMISSION_DENIED"
    http_status = 403


class CallerHalted(NotPermitted):
    """A valid key of an account that may do nothing."""

    def __init__(self) -> None:
        super().__init__("account_halted: this account is halted; ask whoever runs this gateway to resume it")


class StoreUnavailable(ControlError):
    """The database cannot be reached, or is held by another process; trying again later may help."""

    code = "UNAVAILABLE"
    http_status = 503


class StoreFull(ControlError):
    """The database has no room; nothing was changed."""

    code = "RESOURCE_EXHAUSTED"
    http_status = 507

"""Why a gateway does not start."""


class CannotStart(Exception):
    """Its text is one line for the operator, with the next step."""

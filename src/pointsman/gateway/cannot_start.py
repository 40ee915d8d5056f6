"""Why a gateway does not start."""


class CannotStart(Exception):
    """Its text is for the operator: a line for each reason, with the next step."""

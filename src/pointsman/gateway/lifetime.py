"""How long a token or key may live."""

from pointsman.core.control_errors import InvalidRequest

LONGEST_LIFETIME_SECONDS = 100 * 366 * 24 * 3600


def check_lifetime(seconds: int | None) -> None:
    """Raises InvalidRequest; None, for ever, is fine."""
    if seconds is not None and not 0 < seconds <= LONGEST_LIFETIME_SECONDS:
        raise InvalidRequest(f"a lifetime of {seconds} s; between 1 and {LONGEST_LIFETIME_SECONDS}")

"""Who a request of the data listener is from."""

from dataclasses import dataclass

from pointsman.core.account import DEFAULT_ACCOUNT


@dataclass(frozen=True, slots=True)
class Caller:
    """An account, and which of its keys or sandbox tokens was shown."""

    account: str
    key_name: str = ""
    """Empty where none was asked for and none that is known was shown."""


ANYBODY = Caller(DEFAULT_ACCOUNT)
"""Of a listener that asks for no key, and of the door: whoever reaches it."""

"""Who a request of the data listener is from."""

from dataclasses import dataclass

from pointsman.core.account import DEFAULT_ACCOUNT

KEY = "key"
SANDBOX_TOKEN = "sandbox"  # noqa: S105  # a word, no token


@dataclass(frozen=True, slots=True)
class Caller:
    """An account, and which of its keys or sandbox tokens was shown."""

    account: str
    key_name: str = ""
    """Empty where none was asked for and none that is known was shown."""
    kind: str = ""
    """`KEY` or `SANDBOX_TOKEN`: a key and a token may have the same name. Empty as `key_name` is."""
    user: str = ""
    """Who has the key, as the operator calls them; empty for nobody in particular."""

    @property
    def shown_name(self) -> str:
        """A name that no other key or token of the account has: a token's begins with `sandbox:`, no key's can."""
        return f"{SANDBOX_TOKEN}:{self.key_name}" if self.kind == SANDBOX_TOKEN else self.key_name


ANYBODY = Caller(DEFAULT_ACCOUNT)
"""Of a listener that asks for no key, and of the door: whoever reaches it."""

"""Owners of everything else."""

from collections.abc import Callable, Sequence

from pointsman.core.account import Account
from pointsman.core.provider import check_name
from pointsman.store.interface import Store


class Accounts:
    """Operations on accounts."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def create(self, name: str) -> Account:
        """A new account. Raises InvalidRequest or AlreadyExists."""
        check_name(name, "account's name")
        account = Account(name, self._clock())
        async with self._store.write() as writer:
            await writer.insert_account(account)
        return account

    async def list(self) -> Sequence[Account]:
        """All of them, by name."""
        async with self._store.read() as reader:
            return await reader.accounts()

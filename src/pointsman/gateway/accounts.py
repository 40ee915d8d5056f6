"""Owners of everything else."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pointsman.core.account import Account
from pointsman.core.control_errors import NotFound
from pointsman.core.provider import check_name
from pointsman.store.interface import Store


class Accounts:
    """Operations on accounts."""

    def __init__(self, store: Store, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._say = say

    async def create(self, name: str) -> Account:
        """A new account. Raises InvalidRequest or AlreadyExists."""
        check_name(name, "account's name")
        account = Account(name, self._clock())
        async with self._store.write() as writer:
            await writer.insert_account(account)
        return account

    async def halt(self, name: str) -> Account:
        """From now on nothing is served for it, and what is being served ends. Raises NotFound."""
        return await self._set_halted(name, self._clock())

    async def resume(self, name: str) -> Account:
        """It is served again. Raises NotFound."""
        return await self._set_halted(name, None)

    async def _set_halted(self, name: str, moment: float | None) -> Account:
        async with self._store.write() as writer:
            account = await writer.account(name)
            if account is None:
                raise NotFound(f"there is no account {name[:64]!r}; see: pointsman account list")
            if (account.halted_at is None) == (moment is None):
                return account  # since when it is halted stays as it was
            await writer.set_account_halted(name, moment)
        self._say(f"account {name}: {'resumed' if moment is None else 'halted'}")
        return replace(account, halted_at=moment)

    async def list(self) -> Sequence[Account]:
        """All of them, by name."""
        async with self._store.read() as reader:
            return await reader.accounts()

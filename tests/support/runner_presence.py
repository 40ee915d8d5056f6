"""A gateway's sockets of runners, as a test wants them: who is there, and who was told to go."""

from collections.abc import Collection

from pointsman.store.interface import Store


class ScriptedPresence:
    """Both protocols that `Runners` looks at."""

    def __init__(self, store: Store) -> None:
        self.there: set[str] = set()
        """Ids that are connected, of any account."""
        self.asked: list[tuple[str, frozenset[str]]] = []
        self.ended: list[tuple[str, str, bytes | None]] = []
        """Account, id, and the digest of the token that the store had at that moment."""
        self._store = store

    async def connected(self, account: str, runner_ids: Collection[str]) -> Collection[str]:
        self.asked.append((account, frozenset(runner_ids)))
        return self.there  # more than it was asked for

    async def token_ended(self, account: str, runner_id: str) -> None:
        async with self._store.read() as reader:
            runner = await reader.runner(account, runner_id)
        self.ended.append((account, runner_id, None if runner is None else runner.token_digest))
        self.there.discard(runner_id)

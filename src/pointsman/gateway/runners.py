"""Operations on runners: who they are, and that a token which was replaced opens nothing.

Whether one is connected, and ending its connection, is for whoever has the sockets: `Presence` and `RunnersChanged`.
"""

import hmac
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pointsman.core.control_errors import AlreadyExists, InvalidRequest, NotFound, NotPossibleNow, Unauthenticated
from pointsman.core.provider import check_name
from pointsman.core.runner import MOST_RUNNERS, RUNNER_PREFIX, Runner, is_record_id
from pointsman.core.secret import Secret
from pointsman.core.token_digest import digest_of
from pointsman.store.interface import Reader, Store

_NOT_ADMITTED = "the runner's token is not valid, or no longer; register it again: pointsman runner register"


class Presence(Protocol):
    """Knows who is connected, to whichever process of the gateway."""

    async def connected(self, account: str, runner_ids: Collection[str]) -> Collection[str]:
        """Those of an account's runners that are connected now. Raises nothing: who cannot be asked after is not."""


class RunnersChanged(Protocol):
    """Hears what ends a connection."""

    async def token_ended(self, account: str, runner_id: str) -> None:
        """The runner's token was replaced, or the runner deleted; that is committed.

        Whatever was let in by it is to be closed, on whichever process, and its calls ended. Raises nothing.
        """


class NobodyConnected:
    """Of a gateway that takes no runners."""

    async def connected(self, account: str, runner_ids: Collection[str]) -> Collection[str]:
        """None."""
        return ()

    async def token_ended(self, account: str, runner_id: str) -> None:
        """There is nothing to end."""


@dataclass(frozen=True, slots=True)
class SeenRunner:
    """A runner, and whether it is there."""

    runner: Runner
    is_connected: bool


@dataclass(frozen=True, slots=True)
class Registration:
    """A runner with a new token."""

    runner: Runner
    token: Secret
    """The only sight of it."""
    is_new: bool
    """Whether the runner is, too."""


class Runners:
    """Keeps them. `ids` gives 128 random bits in hexadecimal, `random_text` 256 as URL-safe text."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        ids: Callable[[], str],
        random_text: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._random_text = random_text
        self._say = say
        nobody = NobodyConnected()
        self._presence: Presence = nobody
        self._changed: RunnersChanged = nobody

    def look_at(self, presence: Presence, changed: RunnersChanged) -> None:
        """Ask and tell these from now on; before, nobody is connected."""
        self._presence, self._changed = presence, changed

    async def register(self, account: str, name: str = "", runner_id: str = "") -> Registration:
        """A new runner of that name; with an id a new token for that one.

        Raises InvalidRequest, NotFound or AlreadyExists.

        A name that is taken is refused: two machines may have one name, and the second would take the first's place.
        """
        if runner_id:
            return await self.rotate(account, runner_id, name)
        if not name:
            raise InvalidRequest("the runner's name is required; with runner_id a token is replaced")
        check_name(name, "runner's name")
        token = self._token()
        runner = Runner(self._ids(), account, name, digest_of(token.reveal()), self._clock())
        async with self._store.write() as writer:
            known = await writer.runners(account)
            if any(each.name == name for each in known):
                raise AlreadyExists(
                    f"runner {name} exists; give its runner_id to take its place (GET /api/v1/runners has it), or "
                    "choose another name"
                )
            if len(known) >= MOST_RUNNERS:
                raise InvalidRequest(f"the account has {MOST_RUNNERS} runners, and no more; delete one first")
            await writer.insert_runner(runner)
        self._say(f"runner {name} of {account}: registered, id {runner.id}")
        return Registration(runner, token, is_new=True)

    async def rotate(self, account: str, runner_id: str, name: str = "") -> Registration:
        """A new token; the old one, and what was connected by it, ends.

        Raises NotFound, and InvalidRequest for a name that is not the runner's.
        """
        token = self._token()
        async with self._store.write() as writer:
            runner = await _found(writer, account, runner_id)
            if name and name != runner.name:
                raise InvalidRequest(f"the runner is called {runner.name}; leave the name out, or leave runner_id out")
            await writer.replace_runner_token(account, runner_id, digest_of(token.reveal()))
            rotated = await _found(writer, account, runner_id)
        self._say(f"runner {runner.name} of {account}: token rotated, id {runner_id}")
        await self._changed.token_ended(account, runner_id)
        return Registration(rotated, token, is_new=False)

    def _token(self) -> Secret:
        return Secret(RUNNER_PREFIX + self._random_text())

    async def get(self, account: str, runner_id: str) -> SeenRunner:
        """One of them. Raises NotFound."""
        async with self._store.read() as reader:
            runner = await _found(reader, account, runner_id)
        return (await self._seen(account, (runner,)))[0]

    async def list(self, account: str) -> Sequence[SeenRunner]:
        """All of an account's, by name."""
        async with self._store.read() as reader:
            runners = await reader.runners(account)
        return await self._seen(account, runners)

    async def _seen(self, account: str, runners: Sequence[Runner]) -> Sequence[SeenRunner]:
        connected = await self.connected(account, [each.id for each in runners])
        return [SeenRunner(each, each.id in connected) for each in runners]

    async def connected(self, account: str, runner_ids: Iterable[str]) -> frozenset[str]:
        """Which of these runners, all of them the account's, are there."""
        asked = frozenset(runner_ids)
        return asked.intersection(await self._presence.connected(account, asked)) if asked else asked

    async def delete(self, account: str, runner_id: str, *, force: bool) -> Sequence[str]:
        """The aliases of models that are unavailable from now on; they stay, as history.

        Raises NotFound, and NotPossibleNow for one that is connected unless it is forced: its calls would end.
        """
        if not force:
            seen = await self.get(account, runner_id)
            if seen.is_connected:
                raise NotPossibleNow(
                    f"runner {seen.runner.name} is connected, and its calls would end; stop it first, or force it "
                    "(?force=true)"
                )
        async with self._store.write() as writer:
            runner = await _found(writer, account, runner_id)
            models = [each.alias for each in await writer.ai_models_of(account, runner_id)]
            await writer.delete_runner(account, runner_id)
        told = f"; no longer available: {', '.join(models)}" if models else ""
        self._say(f"runner {runner.name} of {account}: deleted, id {runner_id}{told}")
        await self._changed.token_ended(account, runner_id)
        return models

    async def admit(self, runner_id: str, token: str) -> Runner:
        """The runner that a connection is of. Raises Unauthenticated, whatever is wrong with either.

        A token that ends while its connection is being made ends it only if `token_ended` can find it: whoever keeps
        connections asks again once it is among them.
        """
        digest = digest_of(token)
        if is_record_id(runner_id):
            async with self._store.read() as reader:
                runner = await reader.runner_by_digest(digest)
            # The digest was found by an index; this says so in constant time, whatever the database compares like.
            if runner is not None and hmac.compare_digest(runner.token_digest, digest) and runner.id == runner_id:
                return runner
        raise Unauthenticated(_NOT_ADMITTED)

    async def seen(self, runner_id: str) -> None:
        """A runner is connected now. Raises StoreUnavailable or StoreFull."""
        await self._store.note_runner_seen(runner_id, self._clock())


async def _found(reader: Reader, account: str, runner_id: str) -> Runner:
    runner = await reader.runner(account, runner_id) if is_record_id(runner_id) else None
    if runner is None:
        raise NotFound("there is no such runner; see /api/v1/runners")
    return runner

"""Processes that share counters: told through a pipe what to do, and killed in the midst of it."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing.connection import Connection
from typing import Any

from pointsman.core.quota import Quota, QuotaKey
from tests.conformance.ledgers import KEY, NOON, Counting

_fresh = multiprocessing.get_context("forkserver")
# Imported once, in the process that all are forked from.
_fresh.set_forkserver_preload([__name__])


Work = Callable[[Counting, Connection, Any], Coroutine[Any, Any, None]]
"""Says `ready`, then answers what it is told, each time after the barrier."""


class QuotaWorkers:
    """Several, that begin together."""

    def __init__(self, counting: Counting, count: int, work: Work) -> None:
        self._barrier: Any = _fresh.Barrier(count)
        self._pipes: list[Connection] = []
        self.processes: list[Any] = []
        for _ in range(count):
            ours, theirs = _fresh.Pipe()
            # Daemons: when a test fails, they do not outlive the run.
            process = _fresh.Process(target=_run, args=(work, counting, theirs, self._barrier), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)
        for pipe in self._pipes:
            assert pipe.recv() == "ready"

    def admitted(self, provider: str, quota: Quota, tries: int) -> list[int]:
        """How many of so many concurrent reservations each got, all at once."""
        self.tell((provider, quota, tries))
        return self.answers()

    def tell(self, command: Any) -> None:
        """The same to each."""
        for pipe in self._pipes:
            pipe.send(command)

    def answers(self) -> list[Any]:
        """What each says next."""
        return [pipe.recv() for pipe in self._pipes]

    def wait(self, seconds: float) -> None:
        """Let them work for so long."""
        self.processes[0].join(seconds)

    def kill(self) -> None:
        """As SIGKILL does."""
        for process in self.processes:
            process.kill()
            process.join()

    def said(self, worker: int) -> int:
        """The last number that a worker which counts for ever had said; it has been killed."""
        last = 0
        with contextlib.suppress(EOFError):
            while True:
                last = self._pipes[worker].recv()
        return last

    def count_for_ever(self, provider: str, at_once: int) -> None:
        """Each takes places, `at_once` at a time, and says how many it has; every fourth is given back."""
        self.tell((provider, None, at_once))

    def close(self) -> None:
        self.kill()
        for pipe in self._pipes:
            pipe.close()


@contextlib.contextmanager
def quota_workers(counting: Counting, count: int, work: Work | None = None) -> Iterator[QuotaWorkers]:
    """Running workers; of quotas, unless they have other work."""
    workers = QuotaWorkers(counting, count, work or _work)
    try:
        yield workers
    finally:
        workers.close()


def _run(work: Work, counting: Counting, pipe: Connection, barrier: Any) -> None:
    asyncio.run(work(counting, pipe, barrier))


async def _work(counting: Counting, pipe: Connection, barrier: Any) -> None:
    async with counting.opened() as ledger:
        pipe.send("ready")
        while True:
            provider, quota, tries = pipe.recv()
            key = QuotaKey(KEY.account, provider)
            barrier.wait()
            if quota is not None:
                taken = await asyncio.gather(*[ledger.reserve(key, quota, NOON) for _ in range(tries)])
                pipe.send(sum(one is not None for one in taken))
                continue
            have = 0
            while True:
                places = await asyncio.gather(*[ledger.reserve(key, Quota(), NOON) for _ in range(tries)])
                have += len(places)
                pipe.send(have)
                for place in places[::4]:
                    assert place is not None
                    # Said before it is done: what is acknowledged is then never more than what is counted.
                    have -= 1
                    pipe.send(have)
                    await ledger.release(place)

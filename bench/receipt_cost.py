"""What receipts cost each request, in CPU time of the process: hashes and the write of the chain, by size of the body.

    .venv/bin/python bench/receipt_cost.py            # some ten seconds

As `bench/budget_cost.py`: no sockets. The first column is a request without receipts, the others what they add.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_cost import Parts, _Client, dispatcher_of, request_to

from pointsman.core.receipt import ReceiptScope
from pointsman.gateway.stages.receipts import ReceiptStages
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore, open_store
from pointsman.wire.request import Request

_ROUND = 200
CELLS = {
    "no stages": None,
    "receipts of other routes": ReceiptScope(routes=frozenset({"other"})),
    "receipts": ReceiptScope(is_all=True),
}
SIZES = {"as it is": 0, "64 KiB": 64 * 1024}


class Cell:
    """A dispatcher with one arrangement, driven again and again."""

    def __init__(self, dispatcher: Dispatcher, stages: ReceiptStages, size: int) -> None:
        self._dispatcher, self._stages = dispatcher, stages
        request = request_to("direct")
        padded = request.body[:-1] + b',"padding":"%b"}' % (b"x" * size) if size else request.body
        self._request = Request(request.head, padded)
        self.best = float("inf")

    async def round(self) -> None:
        """Some requests, and the writing of their receipts."""
        client, request, dispatcher = cast(ClientConnection, _Client()), self._request, self._dispatcher
        began = time.process_time()
        for _ in range(_ROUND):
            await dispatcher.serve(dispatcher.admit(request.head), request, client)
            await asyncio.sleep(0)
        await self._stages.write()
        self.best = min(self.best, (time.process_time() - began) / _ROUND * 1e6)


@contextlib.asynccontextmanager
async def cell(directory: Path, store: SqlStore, scope: ReceiptScope | None, size: int) -> AsyncIterator[Cell]:
    """One arrangement."""
    parts = Parts("direct", "none", log=False, journal=False, metrics=False, usage=False)
    async with dispatcher_of(parts, directory) as (dispatcher, _):
        stages = ReceiptStages(scope or ReceiptScope(), store, print)
        made = Stages(receipt_open=stages.open, receipt=stages.close)
        dispatcher.pass_stages(NO_STAGES if scope is None else made)
        yield Cell(dispatcher, stages, size)


async def measured(rounds: int) -> dict[tuple[str, str], float]:
    """Microseconds per request, the best of many interleaved rounds."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        store = await open_store(StoreSettings(file_url(directory / "pointsman.db"), directory / "credentials.key"))
        stack.push_async_callback(store.close)
        cells = {
            (name, told): await stack.enter_async_context(cell(directory, store, scope, size))
            for name, scope in CELLS.items()
            for told, size in SIZES.items()
        }
        for _ in range(rounds):
            for each in cells.values():
                await each.round()
        return {key: each.best for key, each in cells.items()}


def main(arguments: list[str]) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    found = asyncio.run(measured(parser.parse_args(arguments).rounds))
    for told in SIZES:
        alone = found["no stages", told]
        print(f"{'body ' + told:20}{'no stages':28}{alone:8.1f}")
        for name in CELLS:
            if name != "no stages":
                print(f"{'':20}{name:28}{found[name, told] - alone:+8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

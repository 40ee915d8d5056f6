"""Engines by model file, so that routes to the same file share one child."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from pointsman.engine.supervisor import Engine, EngineOptions, EngineState


class EngineFleet:
    """Makes engines on demand; `close` ends them all."""

    def __init__(self, *, clock: Callable[[], float], options: EngineOptions | None = None) -> None:
        self._clock = clock
        self._options = options
        self._engines: dict[Path, Engine] = {}

    def engine(self, model: Path) -> Engine:
        """The engine of a model file. Nothing is started by this."""
        engine = self._engines.get(model)
        if engine is None:
            engine = self._engines[model] = Engine(model, clock=self._clock, options=self._options)
        return engine

    def states(self) -> Mapping[Path, EngineState]:
        """What each that was asked for is doing."""
        return {model: engine.state for model, engine in self._engines.items()}

    async def close(self) -> None:
        """End every child. Engines that were handed out answer EngineUnavailable from now on."""
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

"""A data listener whose requests and answers are held against policies."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.core.attempts import Chain, Member
from pointsman.core.budget import Budget
from pointsman.core.model_table import ModelTable, Target
from pointsman.core.policy import Rule
from pointsman.events.record import Record
from pointsman.gateway.following import Followed
from pointsman.gateway.policies import Policies
from pointsman.gateway.stages.budgets import BudgetStages
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.gateway.stages.request_policy import RequestPolicy
from pointsman.gateway.stages.response_policy import ResponsePolicy
from pointsman.proxy.memory_budgets import MemoryBudgetLedger
from pointsman.proxy.stages import Stages
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import open_store
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream

CHAT, MESSAGES = b"/v1/chat/completions", b"/v1/messages"
EVERY_DIALECT = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "anthropic_messages",
)


class PolicedDoor:
    """A listener with policies from a real database."""

    def __init__(self, directory: Path, upstream: Upstream) -> None:
        self._directory = directory
        routes: dict[str, Target] = {name: candidate(upstream.url, route=name) for name in ("fast", "free")}
        routes["canned"] = candidate("mock://x", route="canned", protocols=EVERY_DIALECT)
        routes["fast"] = candidate(upstream.url, route="fast", protocols=EVERY_DIALECT)
        members = tuple(
            Member(name, candidate(upstream.url, route="chained", protocols=EVERY_DIALECT)) for name in ("one", "two")
        )
        routes["chained"] = Chain("default", "chained", members, "in_order", request_timeout_seconds=30.0)
        self.door = DataDoor(table=ModelTable(routes))
        self.lines: list[str] = []
        self.records: list[Record] = []
        """Of requests that have ended."""
        self.budgets: Mapping[str, Sequence[Budget]] = {}
        self.spent = MemoryBudgetLedger()

    def open(self) -> None:
        self.door._thread.start()
        self.door.call(self._open())

    async def _open(self) -> None:
        settings = StoreSettings(file_url(self._directory / "a.db"), self._directory / "a.key")
        self.store = await open_store(settings)
        self.policies = Policies(self.store, lambda: 1.0, self.lines.append)
        self.in_force = PoliciesInForce()
        self.followed = Followed(self.store, self.lines.append)
        await self.followed.keep(self.in_force, "policies")
        self.stage = RequestPolicy(self.in_force)
        budgets = BudgetStages(lambda: self.budgets, self.spent, self.lines.append, time.time)
        self.door.stages = Stages(
            budget_reserve=budgets.reserve,
            budget_settle=budgets.settle,
            request_policy=self.stage,
            response_policy=ResponsePolicy(self.in_force),
            usage_record=self.records.append,
        )
        await self.door._open()

    def close(self) -> None:
        self.stage.close()
        self.door.call(self.store.close())
        self.door.__exit__(None, None, None)

    def set(self, *rules: Rule, is_enforced: bool = True) -> None:
        self.door.call(self.policies.set("default", rules))
        if is_enforced:
            self.door.call(self.policies.enforce("default"))
        self.door.call(self.followed.refresh())

    def ask(self, body: bytes | dict[str, Any], path: bytes = CHAT) -> Answer:
        with self.door.connect() as client:
            client.send(post(body if isinstance(body, bytes) else json.dumps(body).encode(), path))
            return client.answer()

"""What the stages' cells of the fault campaign break: gateways with a key, budgets, prices, a policy and receipts.

Owns setting them up, callers some of whose requests a rule refuses, and holding what was written down (usage rows,
receipts, the audit record, budgets) beside what callers and providers saw. What is broken is the cells'.
"""

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.chain_world import CALLERS, ChainWorld
from tests.support.client_commands import run_client
from tests.support.model_client import ModelClient, Said

WORD = "forbidden-word"
POLICY = f"rules:\n  - {{id: no-word, effect: block, pattern: {WORD}}}\n"
BLOCKED = "403 policy_blocked"
UNCOUNTED = "503 budget_uncounted"
SERVED = ("200 limited", "200 open")
_EVERY = 10
"""So many requests to one that the rule refuses."""
_IN_FORCE_SECONDS = 30.0
_LAST_SECOND = 4
"""Requests of a caller that a killed gateway may not have settled: those of a twentieth of a second, and more."""
_BUDGETS = (
    ("all", "--account-wide", "--requests", "1000000000", "--window", "total"),
    ("each", "--key", "*", "--tokens", "1000000000", "--window", "day"),
    ("spent", "--route", "*", "--money", "1000000", "--window", "month"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer told its caller."""

    request_id: str
    status: int
    policy: str


@dataclass(frozen=True, slots=True)
class Written:
    """What gateways wrote down."""

    rows: int
    receipts: Counter[str]
    """By request."""
    refused: int
    """Decisions of the rule, told one by one or counted."""
    counted: int
    """Requests of the account's budget."""


class StageWorld(ChainWorld):
    """All stages on, all requests with a receipt."""

    options = ("--data-auth=keys",)
    pause_seconds = 0.02
    key = ""
    """What callers show."""

    def configuration(self, limit: int, *, alone: bool, timeout: float = 300) -> str:
        """The gateway's file."""
        return super().configuration(limit, alone=alone, timeout=timeout) + "receipts: all\n"

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """As a chain's, once everything is in force."""
        self.prepare()
        with super().under_load():
            yield

    def prepare(self) -> None:
        """Gateways run, with all that the stages know."""
        for gateway in self.gateways:
            if gateway.process is None:
                gateway.start()
        if self.key:
            return
        self.told: list[Told] = []
        self.halted = 0
        self._numbers = itertools.count()
        self.key = self.run("key", "create", "ada")["key"]
        for budget in _BUDGETS:
            self.run("budget", "create", *budget)
        self.price("3")
        self.enforce(POLICY)
        asked = sum(self._until_in_force(gateway.ports["data"]) for gateway in self.gateways)
        self._before = self._baseline(asked)
        self.upstream.answered.clear()

    def _baseline(self, asked: int) -> Written:
        """What was written of so many requests, the last of which each gateway's rule refused."""
        until = time.monotonic() + _IN_FORCE_SECONDS
        while time.monotonic() < until:
            made = self.written()
            if (made.rows, made.refused, sum(made.receipts.values())) == (asked, len(self.gateways), asked):
                return made
            time.sleep(0.1)
        raise TimeoutError(f"of {asked} requests there are {made}")

    def _until_in_force(self, port: int) -> int:
        """Requests that it took, but for those at the door."""
        asked, until = 0, time.monotonic() + _IN_FORCE_SECONDS
        while time.monotonic() < until:
            with self.client(port) as client:
                status = client.ask("fast", text=WORD).status
            asked += status != 401
            if status == 403:
                return asked
            time.sleep(0.05)
        raise TimeoutError("the policy is not in force")

    def price(self, per_million: str) -> None:
        """Of both providers, from now on."""
        for provider in ("limited", "open"):
            self.run("price", "set", provider, "--input-price", per_million, "--output-price", per_million)

    def enforce(self, policy: str) -> int:
        """The version that these rules are."""
        made: int = self.run("policy", "set", "-", stdin=policy)["version"]
        self.run("policy", "enforce", str(made))
        return made

    def run(self, *arguments: str, stdin: str | None = None) -> Any:
        """What a command of the first gateway's operator prints; it must succeed."""
        options = ("--token-file", str(self.gateway.token_file), "-o", "json")
        result = run_client(self.gateway.url, *arguments, *options, stdin=stdin)
        if result.exit_code:
            raise AssertionError(f"{arguments}: {result.output}")
        return json.loads(result.stdout) if result.stdout.strip() else None

    def lines_of(self, *arguments: str) -> list[Any]:
        """An export."""
        result = run_client(self.gateway.url, *arguments, "--token-file", str(self.gateway.token_file))
        if result.exit_code:
            raise AssertionError(f"{arguments}: {result.output}")
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    def client(self, port: int) -> ModelClient:
        """With the key."""
        return ModelClient(port, self.key)

    def _asked(self, client: ModelClient) -> Said:
        is_refused = next(self._numbers) % _EVERY == 0
        said = client.ask("fast", text=WORD if is_refused else "hello")
        if said.status == 403 and said.json["error"]["code"] == "account_halted":
            self.halted += 1  # at the door, where there is no receipt, or while it ran
        else:
            self.note(said.status, said.fields)
        return said

    def note(self, status: int, fields: Mapping[str, str]) -> None:
        """An answer's status, and its header by lower-case names."""
        self.told.append(Told(fields["x-pointsman-request-id"], status, fields.get("x-pointsman-policy", "")))

    def recovered(self, mended: float, by: str = "limited") -> float:
        """Seconds until every caller but for chance is served or refused by the rule, quickly. Raises TimeoutError."""
        return self.all_end((f"200 {by}", BLOCKED), mended)

    def written(self) -> Written:
        """As the operator's commands tell it."""
        rows = sum(each["requests"] for each in self.run("usage", "--by", "route"))
        receipts = Counter(each["request_id"] for each in self.lines_of("receipt", "export"))
        refused = 0
        for entry in self.lines_of("audit", "export"):
            after = entry["after"]
            told = json.loads(after) if isinstance(after, str) and after else after
            if entry["action"] == "policy.block":
                refused += 1
            elif entry["action"] == "decision.omitted" and entry["subject"] == "policy.block":
                refused += told["count"]
        counted = next(int(each["used"]) for each in self.run("budget", "status") if each["name"] == "all")
        return Written(rows, receipts, refused, counted)

    def complaints(self, *, killed: int = 0, over: int = 0) -> list[str]:
        """What is wrong with what was written, all gateways being ended and started once for what still waits.

        `killed`: how often a gateway was; each may have lost its last second. `over`: requests that may be counted
        too much.
        """
        self.stop()
        for gateway in self.gateways:
            gateway.end()
        for gateway in self.gateways:
            gateway.start()
        wrong = [f"{what} verify: {each}" for what in ("receipt", "audit") for each in self._unverified(what)]
        made, told = self.written(), {each.request_id for each in self.told}
        broken = sum(each.end.startswith("broken") for each in self.calls)
        twice = [each for each, times in made.receipts.items() if times > 1]
        if twice:
            wrong.append(f"{len(twice)} requests have two receipts")
        if missing := told - made.receipts.keys():
            wrong += [] if killed else [f"{len(missing)} requests of {len(told)} have no receipt"]
        extra = len(made.receipts.keys() - told - self._before.receipts.keys())
        if extra > broken + self.halted:
            wrong.append(f"{extra} receipts are of requests that nobody made; {broken} calls broke")
        if made.rows != sum(made.receipts.values()) and not killed:
            wrong.append(f"{made.rows} usage rows, {sum(made.receipts.values())} receipts")
        refused = sum(each.status == 403 for each in self.told)
        noted = made.refused - self._before.refused
        if not killed and not refused <= noted <= refused + broken:
            wrong.append(f"{refused} requests were refused by the rule, {noted} are in the audit record")
        answered = sum(self.upstream.answered.values())
        counted = made.counted - self._before.counted
        if not answered <= counted <= answered + over + killed * CALLERS * _LAST_SECOND:
            wrong.append(f"the budget has counted {counted}, the providers {answered}")
        return wrong

    def _unverified(self, what: str) -> list[str]:
        result = run_client(self.gateway.url, what, "verify", "--token-file", str(self.gateway.token_file))
        return [] if result.exit_code == 0 else [result.output.strip().replace("\n", " | ")]

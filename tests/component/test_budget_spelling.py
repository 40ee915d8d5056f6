"""No way of writing a request takes more of a budget than was reserved for it, or counts it under another name."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from pointsman.core.budget import MOST, Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.token_digest import digest_of
from pointsman.gateway.stages.budgets import BudgetStages
from pointsman.proxy.memory_budgets import MemoryBudgetLedger
from pointsman.proxy.stages import Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post

CHAT = b"/v1/chat/completions"
ALL_DIALECTS = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "anthropic_messages",
)


class Counted:
    """A listener that asks for keys, with budgets; whatever passes is answered at once."""

    def __init__(self) -> None:
        self.budgets: Mapping[str, Sequence[Budget]] = {}
        self.ledger = MemoryBudgetLedger()
        table = ModelTable({"fast": candidate("mock://x", route="fast", protocols=ALL_DIALECTS)}, "fast")
        self.door = DataDoor(table=table)
        self.door.is_open = False
        for kind in (KEY, SANDBOX_TOKEN):
            self.door.keys[digest_of(f"{kind}-ada")] = Entry(Caller("default", "ada", kind), table)
        stages = BudgetStages(lambda: self.budgets, self.ledger, lambda _: None, time.time)
        self.door.stages = Stages(budget_reserve=stages.reserve, budget_settle=stages.settle)

    def of(self, amount: int, unit: BudgetUnit, scope: BudgetScope = BudgetScope.ACCOUNT, subject: str = "") -> None:
        made = Budget("default", "all", scope, subject, unit, amount, BudgetWindow.TOTAL, id=str(time.monotonic_ns()))
        self.budgets = {"default": (made,)}

    def ask(
        self, body: dict[str, Any] | bytes, path: bytes = CHAT, fields: bytes = b"Authorization: Bearer key-ada\r\n"
    ) -> Answer:
        with self.door.connect() as client:
            client.send(post(body if isinstance(body, bytes) else json.dumps(body).encode(), path, fields))
            return client.answer()


@pytest.fixture(scope="module")
def counted() -> Iterator[Counted]:
    counted = Counted()
    with counted.door:
        yield counted
    assert not counted.door.leftover


LARGE: list[tuple[bytes, str]] = [
    (CHAT, '"max_tokens":20000'),
    (CHAT, '"max_completion_tokens":20000'),
    (CHAT, '"max_tokens":1,"max_completion_tokens":20000'),
    (CHAT, '"max_tokens":20000,"max_tokens":1'),
    (CHAT, '"max_tokens":1,"m\\u0061x_tokens":20000'),
    (CHAT, '"max_tokens":1,"MAX_TOKENS":20000'),
    (CHAT, '"max_tokens":1,"max_to\u212aens":20000'),
    (CHAT, '"max_tokens":2e4'),
    (CHAT, '"max_tokens":20000.0'),
    (CHAT, '"max_tokens":"20000"'),
    (CHAT, '"max_tokens":1e308'),
    (CHAT, f'"max_tokens":{2**63}'),
    (CHAT, f'"max_tokens":{2**63 - 1},"n":{2**63 - 1}'),
    (CHAT, '"max_tokens":1,"n_predict":20000'),
    (CHAT, '"max_tokens":100,"n":200'),
    (CHAT, '"max_tokens":100,"n":200.0'),
    (CHAT, '"max_tokens":100,"N":"200"'),
    (CHAT, '"max_tokens":100,"best_of":200'),
    (CHAT, '"n":20'),
    (CHAT, '"max_tokens":null,"n":20'),
    (CHAT, '"max_tokens":-1,"n":20'),
    (CHAT, '"max_tokens":0,"n":20'),
    (CHAT, '"max_tokens":20000,"stream":true,"stream_options":{"include_usage":false}'),
    (b"/v1/completions", '"max_tokens":100,"prompt":' + json.dumps(["a"] * 200)),
    (b"/v1/completions", '"max_tokens":100,"prompt":' + json.dumps([[1]] * 200)),
    (b"/v1/completions", '"max_tokens":10,"best_of":10,"prompt":' + json.dumps(["a"] * 200)),
    (b"/v1/responses", '"max_output_tokens":20000'),
    (b"/v1/messages", '"max_tokens":20000'),
    (b"/v1/embeddings", '"input":' + json.dumps(["a" * 1000] * 50)),
    (CHAT, '"max_tokens":1,"messages":[{"content":"' + "\\u0061" * 8000 + '"}]'),
]


@pytest.mark.guarantee("B3")
@pytest.mark.parametrize(("path", "members"), LARGE)
def test_a_request_for_more_than_there_is_is_refused_in_every_spelling(
    counted: Counted, path: bytes, members: str
) -> None:
    counted.of(15_000, BudgetUnit.TOKENS)
    answer = counted.ask(f'{{"model":"fast",{members}}}'.encode(), path)
    assert answer.status == 429
    assert b"budget" in answer.body
    counted.of(MOST, BudgetUnit.TOKENS)
    answer = counted.ask(f'{{"model":"fast",{members}}}'.encode(), path)
    beyond_all = any(each in members for each in ("1e308", str(2**63), str(2**63 - 1)))
    assert beyond_all or answer.status != 429


@pytest.mark.parametrize(
    "path", [b"/v1/messages/count_tokens?beta=true", b"/v1/messages?x=/count_tokens", b"/v1/messages/%63ount_tokens"]
)
def test_only_counting_itself_is_taken_for_counting(counted: Counted, path: bytes) -> None:
    counted.of(10, BudgetUnit.TOKENS)
    answer = counted.ask({"model": "fast", "max_tokens": 1000}, path)
    is_counting = path.startswith(b"/v1/messages/count_tokens")
    assert (answer.status == 429) is (path.startswith(b"/v1/messages?"))
    assert is_counting or answer.status in (404, 429)


SPELLINGS = (
    b"Authorization: Bearer %b\r\n",
    b"authorization: bearer %b\r\n",
    b"AUTHORIZATION:BEARER   %b \r\n",
    b"x-api-key: %b\r\n",
    b"X-API-KEY:  %b\t\r\n",
    b"Authorization: Bearer %b\r\nX-Api-Key: %b\r\n",
)


@pytest.mark.guarantee("B3")
def test_a_key_is_one_subject_however_it_is_sent_and_a_sandbox_of_its_name_another(counted: Counted) -> None:
    for scope, kind, other in (
        (BudgetScope.KEY, b"key-ada", b"sandbox-ada"),
        (BudgetScope.SANDBOX, b"sandbox-ada", b"key-ada"),
    ):
        counted.of(len(SPELLINGS), BudgetUnit.REQUESTS, scope, "*")
        for fields in SPELLINGS:
            assert counted.ask({"model": "fast"}, fields=fields.replace(b"%b", kind)).status == 200
        for fields in SPELLINGS:
            assert counted.ask({"model": "fast"}, fields=fields.replace(b"%b", kind)).status == 429
            assert counted.ask({"model": "fast"}, fields=fields.replace(b"%b", other)).status == 200


@pytest.mark.parametrize("model", ["fast", "FAST", "anything", "fast ", "\u212a"])
def test_a_route_is_one_subject_whatever_name_led_to_it(counted: Counted, model: str) -> None:
    counted.of(1, BudgetUnit.REQUESTS, BudgetScope.ROUTE, "fast")
    assert counted.ask({"model": model}).status == 200
    assert counted.ask({"model": "fast"}).status == 429
    assert counted.ask(b'{"model":"\\u0066ast"}').status == 429

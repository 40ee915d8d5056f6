"""Records of every kind of one account, asked for in another: not found, or not shown, over REST and over gRPC.

Every operation of the document and every method of every service has a row; one without fails.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pointsman.core.data_key import PERMISSIONS
from pointsman.core.receipt import Receipt
from pointsman.core.usage_row import REPORTED, UsageRow
from tests.component.test_grpc_gate import METHODS, call
from tests.component.test_rest_who_may import WHO_MAY, documented
from tests.support.control_plane import ADMIN
from tests.support.rest import BEARER, OPENAI, RunningApi
from tests.support.watched_api import watched_api

THEIRS = {**BEARER, "x-pointsman-account": "theirs"}
RECEIPT = "dead-beef"
VERSION = 9
"""Of a policy. The other account gets versions of its own, but none so high."""
NOT_THERE, NOTHING_OF_IT, OF_ALL = "not there", "nothing of it", "of all accounts"
MODEL = {"name": "hidden", "alias": "hidden-model", "model_identifier": "m", "api_endpoint": "http://localhost:1/v1"}

REST: dict[str, tuple[str, Any]] = {
    "health": (NOTHING_OF_IT, None),
    "live_stats": (NOTHING_OF_IT, None),
    "stats_history": (OF_ALL, None),
    "providers_health": (NOTHING_OF_IT, None),
    "metrics": (OF_ALL, None),
    "status": (NOTHING_OF_IT, None),
    "list_providers": (NOTHING_OF_IT, None),
    "create_provider": (NOTHING_OF_IT, {**OPENAI, "name": "own"}),
    "get_provider": (NOT_THERE, None),
    "update_provider": (NOT_THERE, {"config": {"A": "b"}}),
    "delete_provider": (NOT_THERE, None),
    "list_routes": (NOTHING_OF_IT, None),
    "get_route": (NOT_THERE, None),
    "set_route": (NOT_THERE, {"provider_name": "hidden", "model": "m", "verify": False}),
    "update_route": (NOT_THERE, {"timeout_seconds": 7, "verify": False}),
    "delete_route": (NOT_THERE, None),
    "list_sandbox_tokens": (NOTHING_OF_IT, None),
    "create_sandbox_token": (NOTHING_OF_IT, {"name": "own"}),
    "revoke_sandbox_token": (NOT_THERE, None),
    "list_keys": (NOTHING_OF_IT, None),
    "create_key": (NOTHING_OF_IT, {"name": "own"}),
    "revoke_key": (NOT_THERE, None),
    "list_accounts": (OF_ALL, None),
    "create_account": (NOTHING_OF_IT, {"name": "own"}),
    "halt_account": (NOT_THERE, None),
    "resume_account": (NOT_THERE, None),
    "register_runner": (NOT_THERE, {"runner_id": "RUNNER"}),
    "list_runners": (NOTHING_OF_IT, None),
    "get_runner": (NOT_THERE, None),
    "rotate_runner_token": (NOT_THERE, None),
    "delete_runner": (NOT_THERE, None),
    "register_ai_model": (NOT_THERE, MODEL),
    "create_ai_model": (NOTHING_OF_IT, {"name": "a", "model_identifier": "m", "api_endpoint": "https://93.184.215.14"}),
    "list_ai_models": (NOTHING_OF_IT, None),
    "get_ai_model": (NOT_THERE, None),
    "replace_ai_model": (NOT_THERE, MODEL),
    "delete_ai_model": (NOT_THERE, None),
    "list_budgets": (NOTHING_OF_IT, None),
    "create_budget": (NOTHING_OF_IT, {"name": "own", "scope": "account", "unit": "requests", "amount": "1",
                                      "window": "day"}),
    "get_budget": (NOT_THERE, None),
    "update_budget": (NOT_THERE, {"soft": True}),
    "delete_budget": (NOT_THERE, None),
    "budget_status": (NOTHING_OF_IT, None),
    "status_of_budget": (NOT_THERE, None),
    "list_prices": (NOTHING_OF_IT, None),
    "set_price": (NOTHING_OF_IT, {"provider": "own", "input": "1", "output": "2"}),
    "delete_price": (NOT_THERE, None),
    "list_price_changes": (NOTHING_OF_IT, None),
    "list_usage": (NOTHING_OF_IT, None),
    "sum_usage": (NOTHING_OF_IT, None),
    "list_policies": (NOTHING_OF_IT, None),
    "set_policy": (NOTHING_OF_IT, {"rules": []}),
    "get_policy": (NOT_THERE, None),
    "update_policy": (NOT_THERE, {"state": "enforced"}),
    "roll_back_policy": (NOT_THERE, {"version": VERSION}),
    "list_audit": (NOTHING_OF_IT, None),
    "verify_audit": (OF_ALL, None),
    "list_receipts": (NOTHING_OF_IT, None),
    "get_receipt": (NOT_THERE, None),
    "verify_receipts": (NOTHING_OF_IT, None),
    "explain": (OF_ALL, {"model": "hidden"}),  # by the listener's own table: test_explain
}  # fmt: skip
"""What is asked for in `default`, and what it comes to. The records are `theirs`."""

_PROVIDER = {"name": "hidden", "type": "openai", "credentials": {"OPENAI_API_KEY": "x"}}
GRPC: dict[str, tuple[str, dict[str, Any]]] = {
    "Audit/ListAudit": (NOTHING_OF_IT, {}),
    "Audit/VerifyAudit": (OF_ALL, {}),
    "Budgets/CreateBudget": (NOTHING_OF_IT, REST["create_budget"][1] | {"name": "second"}),
    "Budgets/UpdateBudget": (NOT_THERE, {"name": "hidden", "soft": True}),
    "Budgets/GetBudget": (NOT_THERE, {"name": "hidden"}),
    "Budgets/ListBudgets": (NOTHING_OF_IT, {}),
    "Budgets/DeleteBudget": (NOTHING_OF_IT, {"name": "hidden"}),
    "Budgets/GetBudgetStatus": (NOT_THERE, {"name": "hidden"}),
    "Control/SetRoute": (NOT_THERE, {"name": "own", "provider_name": "hidden", "model": "m", "no_verify": True}),
    "Control/UpdateRoute": (NOT_THERE, {"name": "hidden", "timeout_secs": 7, "no_verify": True}),
    "Control/GetRoute": (NOT_THERE, {"name": "hidden"}),
    "Control/ListRoutes": (NOTHING_OF_IT, {}),
    "Control/DeleteRoute": (NOTHING_OF_IT, {"name": "hidden"}),
    "Control/DeleteProvider": (NOTHING_OF_IT, {"name": "hidden", "force": True}),
    "Control/CreateSandboxToken": (NOTHING_OF_IT, {"name": "second"}),
    "Control/ListSandboxTokens": (NOTHING_OF_IT, {}),
    "Control/RevokeSandboxToken": (NOTHING_OF_IT, {"name": "hidden"}),
    "Control/CreateKey": (NOTHING_OF_IT, {"name": "second"}),
    "Control/ListKeys": (NOTHING_OF_IT, {}),
    "Control/RevokeKey": (NOTHING_OF_IT, {"name": "hidden"}),
    "Control/CreateAccount": (NOTHING_OF_IT, {"name": "second"}),
    "Control/ListAccounts": (OF_ALL, {}),
    "Control/HaltAccount": (NOT_THERE, {"name": "hidden"}),
    "Control/ResumeAccount": (NOT_THERE, {"name": "hidden"}),
    "Control/Explain": (OF_ALL, {"model": "hidden"}),
    "Control/GetStatus": (NOTHING_OF_IT, {}),
    "Inference/GetInferenceBundle": (OF_ALL, {}),  # for sandboxes alone: test_grpc_gate
    "Inference/SetClusterInference": (NOT_THERE, {"provider_name": "hidden", "model_id": "m", "no_verify": True}),
    "Inference/GetClusterInference": (NOT_THERE, {"route_name": "sandbox-system"}),
    "OpenShell/Health": (NOTHING_OF_IT, {}),
    "OpenShell/CreateProvider": (NOTHING_OF_IT, {"provider": {**_PROVIDER, "name": "second"}}),
    "OpenShell/GetProvider": (NOT_THERE, {"name": "hidden"}),
    "OpenShell/ListProviders": (NOTHING_OF_IT, {"limit": 1000}),
    "OpenShell/UpdateProvider": (NOT_THERE, {"provider": {**_PROVIDER, "type": ""}}),
    "OpenShell/DeleteProvider": (NOTHING_OF_IT, {"name": "hidden"}),
    "Policies/SetPolicy": (NOTHING_OF_IT, {}),
    "Policies/GetPolicy": (NOT_THERE, {"version": VERSION}),
    "Policies/ListPolicies": (NOTHING_OF_IT, {}),
    "Policies/EnforcePolicy": (NOT_THERE, {"version": VERSION}),
    "Policies/DryRunPolicy": (NOT_THERE, {"version": VERSION}),
    "Policies/RollBackPolicy": (NOT_THERE, {"version": VERSION}),
    "Prices/SetPrice": (NOTHING_OF_IT, {"price": {"provider": "own", "input": "1", "output": "3"}}),
    "Prices/ListPrices": (NOTHING_OF_IT, {}),
    "Prices/DeletePrice": (NOTHING_OF_IT, {"provider": "hidden"}),
    "Prices/ListPriceChanges": (NOTHING_OF_IT, {}),
    "Receipts/ListReceipts": (NOTHING_OF_IT, {"limit": 100}),
    "Receipts/GetReceipt": (NOT_THERE, {"request_id": RECEIPT}),
    "Receipts/VerifyReceipts": (NOTHING_OF_IT, {}),
    "Usage/SumUsage": (NOTHING_OF_IT, {"by": "route"}),
}
"""The same by service and method."""


class Theirs:
    """Another account's records, one of each kind, all named `hidden`."""

    def __init__(self, api: RunningApi) -> None:
        self.api = api
        assert api.post("/accounts", {"name": "theirs"}).status == 201
        setting = {"provider_name": "hidden", "model": "m", "verify": False}
        budget = {"name": "hidden", "scope": "account", "unit": "requests", "amount": "1", "window": "total"}
        self._made("POST", "/providers", {**OPENAI, "name": "hidden"})
        self._made("PUT", "/routes/hidden", setting)
        self._made("PUT", "/routes/sandbox-system", setting)
        self._made("POST", "/sandbox-tokens", {"name": "hidden"})
        self._made("POST", "/keys", {"name": "hidden", "user": "hidden"})
        self._made("POST", "/budgets", budget)
        self._made("PUT", "/prices", {"provider": "hidden", "input": "1", "output": "2"})
        rule = {"id": "hidden", "effect": "block", "denied_tools": ["hidden"]}
        for _ in range(VERSION):
            self._made("POST", "/policies", {"rules": [rule]})
        for number in (1, VERSION):
            self._made("PATCH", f"/policies/{number}", {"state": "enforced"})
        self.runner: str = self._made("POST", "/runners/register", {"name": "hidden"})["id"]
        self.model: str = self._made("POST", f"/runners/{self.runner}/models", MODEL)["id"]
        store = api.running.control.store
        receipt = Receipt(0, RECEIPT, 1.5, "theirs", "hidden", "hidden", "m", 0, 1, 200, b"", b"", b"", b"")
        api.running.call(store.append_receipts([receipt], again=False))
        row = UsageRow("theirs", RECEIPT, time.time(), "hidden", "hidden", "m", 200, 1, 2, key_name="hidden",
                       usage_source=REPORTED)  # fmt: skip
        api.running.call(store.append_usage([row]))

    def _made(self, method: str, path: str, body: object) -> Any:
        answer = self.api.ask(method, f"/api/v1{path}", body, headers=THEIRS)
        assert answer.status in (200, 201), answer.body
        return answer.json

    def place(self, path: str) -> str:
        """A path of the document that names their record."""
        names = {"runner_id": self.runner, "model_id": self.model, "request_id": RECEIPT, "version": str(VERSION)}
        return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], "hidden"), path)

    def shown_in(self, text: str) -> bool:
        return any(each in text for each in ("hidden", RECEIPT, self.runner, self.model))

    def all_of_it(self) -> dict[str, Any]:
        """What they see of it themselves, and what was noted of it."""
        paths = ("providers", "routes", "sandbox-tokens", "keys", "budgets", "prices", "policies", "runners",
                 "ai-models", "receipts", "usage/rows", "audit")  # fmt: skip
        return {path: self.api.get(f"/{path}", headers=THEIRS).json for path in paths}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    with watched_api(tmp_path_factory.mktemp("others")) as (api, _):
        theirs = Theirs(api)
        before = theirs.all_of_it()
        assert [path for path, seen in before.items() if not theirs.shown_in(str(seen))] == ["policies"]
        yield theirs
        assert theirs.all_of_it() == before


def test_the_tables_are_of_every_operation_and_of_every_method(theirs: Theirs) -> None:
    assert REST.keys() == documented(theirs.api).keys()
    assert GRPC.keys() == {method.rpartition(".")[2] for method in METHODS}


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("operation", REST)
def test_an_operation_does_not_reach_records_of_others(theirs: Theirs, operation: str) -> None:
    outcome, body = REST[operation]
    method, path = documented(theirs.api)[operation]
    place = theirs.place(path)
    sent = {**body, "runner_id": theirs.runner} if body is not None and "runner_id" in body else body
    callers = [BEARER, {**BEARER, "x-pointsman-account": "default"}]
    if WHO_MAY[operation] in PERMISSIONS:
        callers.append(theirs.api.key_bearer(*PERMISSIONS))
    for headers in callers:
        answer = theirs.api.ask(method, place, sent, headers=headers)
        if outcome == NOT_THERE:
            assert answer.status == (409 if operation == "set_route" else 404), answer.body
        elif outcome == NOTHING_OF_IT:
            assert answer.status in (200, 201, 409), answer.body
            assert not theirs.shown_in(answer.body.decode())


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("method", GRPC)
def test_a_method_does_not_reach_records_of_others(theirs: Theirs, method: str) -> None:
    outcome, fields = GRPC[method]
    [whole] = [each for each in METHODS if each.endswith(f".{method}")]
    request: Any = ParseDict(fields, GetMessageClass(METHODS[whole].input_type)())
    answer = call(theirs.api.running, whole, ADMIN, request)
    if outcome == NOT_THERE:
        assert answer in ("NOT_FOUND", "FAILED_PRECONDITION")
    elif outcome == NOTHING_OF_IT:
        assert isinstance(answer, Message), answer
        assert not theirs.shown_in(str(answer))

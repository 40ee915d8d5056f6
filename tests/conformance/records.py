"""Records for the store's tests."""

import hashlib

from pointsman.core.ai_model import DIRECT, RUNNER, AiModel
from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.context_options import ContextOptions
from pointsman.core.data_key import INFERENCE, DataKey
from pointsman.core.policy import Effect, PolicyState, PolicyVersion, Rule, RuleScope, Side
from pointsman.core.provider import Provider
from pointsman.core.route import CHAIN, Route, RouteCandidate
from pointsman.core.runner import Runner
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.core.usage_row import UsageRow
from tests.support.canary import KEY

ACCOUNT = "default"
RULES = (
    Rule("all", Side.REQUEST, Effect.BLOCK, RuleScope(("r",), ("k", "sandbox:s"), ("d",)), ("a*",), ("b",)),
    Rule("é", Side.RESPONSE, Effect.REDACT, pattern="'\"\\d😀", most_tokens=7, denied_fields=("x",), denies_route=True),
)


def provider(name: str = "openai-1", account: str = ACCOUNT, value: str = KEY, created_at: float = 1.25) -> Provider:
    return Provider(
        id=hashlib.sha256(f"{account}/{name}".encode()).hexdigest()[:32],
        account=account,
        name=name,
        type="openai",
        credentials={"OPENAI_API_KEY": Secret(value), "AN_EMPTY_ONE": Secret("")},
        config={"Z": "last given first", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ü": "😀"},
        created_at=created_at,
        updated_at=1732900000.123456,
    )


def route(name: str = "inference.local", account: str = ACCOUNT, provider_name: str = "openai-1") -> Route:
    return Route(account, name, provider_name, "gpt-x", timeout_seconds=7)


def token(name: str = "box", account: str = ACCOUNT, expires_at: float | None = None) -> SandboxToken:
    digest = hashlib.sha256(f"{account}/{name}".encode()).digest()
    return SandboxToken(account, name, digest, "inference.local", 3.5, expires_at)


def chain(name: str = "fast", account: str = ACCOUNT) -> Route:
    return Route(
        account,
        name,
        provider_name="",
        model="",
        kind=CHAIN,
        candidates=(RouteCandidate("openai-1"), RouteCandidate("groq_1", 'a "quoted" model')),
        strategy="least_used",
        fallback="local",
        request_timeout_seconds=90,
    )


_TRIMMED = ContextOptions(drop_duplicates=True, most_tokens=5000)


def key(name: str = "laptop", account: str = ACCOUNT, expires_at: float | None = None) -> DataKey:
    digest = hashlib.sha256(f"key {account}/{name}".encode()).digest()
    return DataKey(account, name, digest, 3.5, (INFERENCE, "models:view"), ("fast", "slow"), expires_at)


def budget(name: str = "team-month", account: str = ACCOUNT) -> Budget:
    return Budget(
        account,
        name,
        BudgetScope.KEY,
        "*",
        BudgetUnit.MONEY,
        2**62,
        BudgetWindow.MONTH,
        "Europe/Budapest",
        is_hard=False,
        version=3,
        id=_id(f"budget {account}/{name}"),
    )


def usage_row(number: int, account: str = ACCOUNT) -> UsageRow:
    return UsageRow(
        account,
        f"r-{number}",
        at=1000.0 + number,
        route="fast",
        provider="openai-1",
        model="gpt-x",
        status=200,
        prompt_tokens=2**40,
        completion_tokens=None,
        attempts=2,
        latency_ms=12.5,
        key_name="laptop",
        key_user="ada",
        requested_model="any",
        ai_model_id="m" * 32,
        upstream_request_id=f"req_{number}",
        finish_reason="tool_calls",
        error_detail="status 500 …",
        client_retries=number,
        is_fallback=1,
        budgets="team,laptop-day",
        refused_budget="pocket",
    )


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def runner(name: str = "laptop", account: str = ACCOUNT) -> Runner:
    digest = hashlib.sha256(f"runner {account}/{name}".encode()).digest()
    return Runner(_id(f"runner {account}/{name}"), account, name, digest, 4.5)


def runner_model(alias: str = "llama", account: str = ACCOUNT, of: str = "laptop", identifier: str = "") -> AiModel:
    """Of the runner with that name, which need not be there."""
    return AiModel(
        _id(f"model {account}/{alias}"),
        account,
        "Llama, small",
        alias,
        RUNNER,
        runner(of, account).id,
        "http://localhost:11434/v1",
        identifier or f"{alias}:3b",
        5.5,
    )


def direct_model(alias: str = "far", account: str = ACCOUNT) -> AiModel:
    endpoint = "https://models.example/v1"
    return AiModel(
        _id(f"model {account}/{alias}"), account, "Far away", alias, DIRECT, None, endpoint, "big", 6.5, _TRIMMED
    )


def policy(version: int = 1, account: str = ACCOUNT, state: PolicyState = PolicyState.DRY_RUN) -> PolicyVersion:
    return PolicyVersion(account, version, RULES, 1.25, state)

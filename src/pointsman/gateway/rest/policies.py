"""`/policies` as HTTP. All of it is the admin's."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from pointsman.core.policy import Effect, PolicyVersion, Rule, RuleScope, Side
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.endpoints import BASE, AccountName
from pointsman.gateway.rest.requests import WHOLE
from pointsman.routing import policy_rules
from pointsman.routing.text_patterns import LONGEST_PATTERN

_MOST_VERSION = 10**12
Version = Annotated[int, Path(ge=1, le=_MOST_VERSION, description="1, 2, 3 … of the account.")]
Names = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=policy_rules.LONGEST_NAME)]],
    Field(max_length=policy_rules.MOST_NAMES),
]


class PolicyRule(BaseModel):
    """One rule: which requests it is about, one condition, and its effect."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    id: str = Field(min_length=1, max_length=64, description=f"Of {policy_rules.ID_RULE}.")
    side: Literal["request", "response"] = "request"
    effect: Literal["block", "redact", "flag"]
    routes: Names = Field(default_factory=list, description="None: all, as with keys and dialects.")
    keys: Names = Field(default_factory=list, description="Names of keys; sandbox:NAME for a sandbox's token.")
    dialects: Names = Field(default_factory=list, description=f"Of {', '.join(policy_rules.DIALECTS)}.")
    denied_tools: Names = Field(default_factory=list, description="`*` stands for any characters.")
    allowed_tools: Names = Field(default_factory=list, description="All others match.")
    denied_fields: Names = Field(default_factory=list, description="Top-level members of the request.")
    most_tokens: Annotated[int, WHOLE] = Field(
        default=0, ge=0, le=policy_rules.MOST_TOKENS, description="Of output; 0: not asked."
    )
    pattern: str = Field(default="", max_length=LONGEST_PATTERN, description="Of RE2.")
    denies_route: bool = Field(default=False, description="It matches every request that it is about.")

    def rule(self) -> Rule:
        """The same for an operation."""
        return Rule(
            self.id,
            Side(self.side),
            Effect(self.effect),
            RuleScope(tuple(self.routes), tuple(self.keys), tuple(self.dialects)),
            tuple(self.denied_tools),
            tuple(self.allowed_tools),
            tuple(self.denied_fields),
            self.most_tokens,
            self.pattern,
            self.denies_route,
        )

    @classmethod
    def of(cls, rule: Rule) -> "PolicyRule":
        """What is kept, as it was set."""
        scope = rule.scope
        given: dict[str, Any] = {
            "id": rule.id,
            "side": str(rule.side),
            "effect": str(rule.effect),
            "routes": list(scope.routes),
            "keys": list(scope.keys),
            "dialects": list(scope.dialects),
            "denied_tools": list(rule.denied_tools),
            "allowed_tools": list(rule.allowed_tools),
            "denied_fields": list(rule.denied_fields),
            "most_tokens": rule.most_tokens,
            "pattern": rule.pattern,
            "denies_route": rule.denies_route,
        }
        return cls(**given)


class NewPolicy(BaseModel):
    """Rules for a new version."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    rules: list[PolicyRule] = Field(max_length=policy_rules.MOST_RULES)


class PolicyChange(BaseModel):
    """What a version is to be."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    state: Literal["enforced", "dry_run"]


class PolicyRollback(BaseModel):
    """Back to which version."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    version: Annotated[int, Field(ge=1, le=_MOST_VERSION), WHOLE] | None = Field(
        default=None, description="One that was enforced; left out: the one before."
    )


class PolicySummary(BaseModel):
    """A version without its rules."""

    version: int
    state: Literal["enforced", "dry_run", "kept"]
    rule_count: int
    created_at: datetime
    enforced_at: datetime | None = Field(description="When it was enforced last; null: never.")

    @classmethod
    def of(cls, policy: PolicyVersion) -> "PolicySummary":
        """What is kept of it."""
        return cls(**_fields(policy))


class PolicyAnswer(PolicySummary):
    """A version."""

    rules: list[PolicyRule]

    @classmethod
    def of(cls, policy: PolicyVersion) -> "PolicyAnswer":
        """What is kept of it."""
        return cls(**_fields(policy), rules=[PolicyRule.of(each) for each in policy.rules])


def _fields(policy: PolicyVersion) -> dict[str, Any]:
    enforced = policy.enforced_at
    return {
        "version": policy.version,
        "state": str(policy.state),
        "rule_count": len(policy.rules),
        "created_at": datetime.fromtimestamp(policy.created_at, UTC),
        "enforced_at": None if enforced is None else datetime.fromtimestamp(enforced, UTC),
    }


class PolicyList(BaseModel):
    """All versions that are kept, the newest first."""

    policies: list[PolicySummary]


class PolicyEndpoints:
    """`/policies`."""

    def __init__(self, control: ControlPlane) -> None:
        self._policies = control.policies

    async def set(self, account: AccountName, body: NewPolicy, response: Response) -> PolicyAnswer:
        """Set a new version. It is a dry run, in place of the one before; what is enforced stays so."""
        made = await self._policies.set(account, tuple(each.rule() for each in body.rules))
        response.headers["location"] = f"{BASE}/policies/{made.version}"
        return PolicyAnswer.of(made)

    async def list(self, account: AccountName) -> PolicyList:
        """All versions that are kept, the newest first."""
        return PolicyList(policies=[PolicySummary.of(each) for each in await self._policies.list(account)])

    async def get(self, account: AccountName, version: Version) -> PolicyAnswer:
        """One version."""
        return PolicyAnswer.of(await self._policies.get(account, version))

    async def update(self, account: AccountName, version: Version, body: PolicyChange) -> PolicyAnswer:
        """Enforce a version, or let it only tell what it would do; in place of the one that is so now."""
        if body.state == "enforced":
            return PolicyAnswer.of(await self._policies.enforce(account, version))
        return PolicyAnswer.of(await self._policies.dry_run(account, version))

    async def rollback(self, account: AccountName, body: PolicyRollback) -> PolicyAnswer:
        """Enforce what was enforced before."""
        return PolicyAnswer.of(await self._policies.rollback(account, body.version or 0))


def add_policies(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    policies = PolicyEndpoints(control)
    many, one = f"{BASE}/policies", f"{BASE}/policies/{{version}}"
    for method, path, endpoint, name, options in (
        ("POST", many, policies.set, "set_policy", {"status_code": 201}),
        ("GET", many, policies.list, "list_policies", {}),
        ("GET", one, policies.get, "get_policy", {}),
        ("PATCH", one, policies.update, "update_policy", {}),
        ("POST", f"{many}/rollback", policies.rollback, "roll_back_policy", {}),
    ):
        given: dict[str, Any] = {"operation_id": name, **options}
        api.router.add_api_route(path, endpoint, methods=[method], **given)

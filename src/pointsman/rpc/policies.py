"""Policies as messages."""

from collections.abc import Iterable

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.policy import Effect, PolicyVersion, Rule, RuleScope, Side
from pointsman.rpc.gen import policies_pb2 as pb


def rules_of(messages: Iterable[pb.PolicyRule]) -> tuple[Rule, ...]:
    """Raises InvalidRequest for words that mean nothing."""
    return tuple(_rule(number, message) for number, message in enumerate(messages, 1))


def _rule(number: int, message: pb.PolicyRule) -> Rule:
    try:
        side, effect = Side(message.side or Side.REQUEST), Effect(message.effect)
    except ValueError:
        words = ", ".join((*Side, *Effect))
        raise InvalidRequest(f"rule {number}: its side or effect is none; the words are {words}") from None
    return Rule(
        id=message.id,
        side=side,
        effect=effect,
        scope=RuleScope(tuple(message.routes), tuple(message.keys), tuple(message.dialects)),
        denied_tools=tuple(message.denied_tools),
        allowed_tools=tuple(message.allowed_tools),
        denied_fields=tuple(message.denied_fields),
        most_tokens=message.most_tokens,
        pattern=message.pattern,
        denies_route=message.denies_route,
    )


def rule_message(rule: Rule) -> pb.PolicyRule:
    """One rule."""
    return pb.PolicyRule(
        id=rule.id,
        side=rule.side,
        effect=rule.effect,
        routes=rule.scope.routes,
        keys=rule.scope.keys,
        dialects=rule.scope.dialects,
        denied_tools=rule.denied_tools,
        allowed_tools=rule.allowed_tools,
        denied_fields=rule.denied_fields,
        most_tokens=rule.most_tokens,
        pattern=rule.pattern,
        denies_route=rule.denies_route,
    )


def policy_message(policy: PolicyVersion, *, with_rules: bool = True) -> pb.PolicyRecord:
    """One version."""
    return pb.PolicyRecord(
        version=policy.version,
        state=policy.state,
        rules=map(rule_message, policy.rules) if with_rules else (),
        rule_count=len(policy.rules),
        created_at_ms=round(policy.created_at * 1000),
        enforced_at_ms=round((policy.enforced_at or 0) * 1000),
    )

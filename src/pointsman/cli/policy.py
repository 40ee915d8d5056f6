"""`pointsman policy`: what requests and answers of an account may hold."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.show import block, moment, output_option, show, show_json, show_lines, told
from pointsman.cli.table import table
from pointsman.config.policy_file import PolicyFileCheck, check_policy_text
from pointsman.config.text_file import Unreadable, decode, read_bytes
from pointsman.core.caller import ANYBODY, KEY, SANDBOX_TOKEN, Caller
from pointsman.core.errors import MalformedRequest
from pointsman.core.policy import Policy, Rule, Side
from pointsman.routing.policy_rules import CONDITIONS, DIALECTS
from pointsman.wire.json_model import read_model

if TYPE_CHECKING:
    from pointsman.routing.policy import Decision
    from pointsman.rpc.gen.policies_pb2 import PolicyRecord

_STANDARD_INPUT = "-"
_HEAD = ("VERSION", "STATE", "RULES", "SET", "ENFORCED")
_HIT_HEAD = ("RULE", "EFFECT", "PLACE")
_LARGEST_BODY = 10 * 1024 * 1024
_version = click.argument("version", metavar="[VERSION]", default=0, type=click.IntRange(min=0))


@click.group()
def policy() -> None:
    """Rules for what requests and answers may hold: tools, fields, tokens, patterns in text.

    A policy that is set is a dry run: the answers' x-pointsman-policy and the operation log tell what it would do.
    'pointsman policy enforce' lets it take effect.

    \b
    Examples:
      pointsman policy test policy.yaml body.json
      pointsman policy set policy.yaml
      pointsman policy enforce

    \b
    where policy.yaml is:
      rules:
        - {id: no-shell, effect: block, denied_tools: [bash, "shell*"]}
        - {id: no-keys, effect: redact, pattern: 'AKIA[0-9A-Z]{16}'}
        - {id: short, effect: block, most_tokens: 8000, routes: [fast]}
        - {id: no-calls, side: response, effect: block, denied_tools: [bash]}
    """


@policy.command(name="set")
@click.argument("file", metavar="FILE")
@output_option
@client_options
def set_(access: Access, file: str, output: str) -> None:
    """Make the rules of a file the account's dry run.

    What is enforced stays so. '-' is standard input.

    \b
    Examples:
      pointsman policy set policy.yaml
      pointsman policy set policy.yaml --account team
    """
    from pointsman.rpc.gen import policies_pb2
    from pointsman.rpc.policies import rule_message

    # Where the engine is not installed, the gateway says what is wrong with a pattern.
    rules = _rules(file, _pattern_check() or (lambda _: ""))
    request = policies_pb2.SetPolicyRequest(rules=map(rule_message, rules))
    with access.open() as gateway:
        made = gateway.call(gateway.policies.SetPolicy, request)
    lines = [
        f"Policy {made.version} is a dry run, with {_counted(made.rule_count)}",
        f"Let it take effect: {access.command('policy enforce')}",
    ]
    show(output, lines, _json(made))


@policy.command()
@_version
@output_option
@client_options
def get(access: Access, version: int, output: str) -> None:
    """Show a version; without VERSION the newest."""
    from pointsman.rpc.gen import policies_pb2

    with access.open() as gateway:
        found = gateway.call(gateway.policies.GetPolicy, policies_pb2.PolicyVersionRequest(version=version))
    if output == "json":
        show_json(_json(found))
        return
    lines = block(f"Policy {found.version}", [("State", found.state), ("Set", moment(found.created_at_ms) or "")])
    for rule in found.rules:
        lines += ["", *block(f"Rule {told(rule.id)}", _rule_pairs(rule))]
    show_lines(lines)


@policy.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List versions, the newest first."""
    from pointsman.rpc.gen import policies_pb2

    with access.open() as gateway:
        kept = gateway.call(gateway.policies.ListPolicies, policies_pb2.ListPoliciesRequest()).policies
    if output == "json":
        show_json([_json(each, with_rules=False) for each in kept])
    else:
        rows = [_row(each) for each in kept]
        show_lines(table(_HEAD, rows) if rows else [f"No policy; {access.command('policy set FILE')!r} sets one"])


@policy.command()
@_version
@output_option
@client_options
def enforce(access: Access, version: int, output: str) -> None:
    """Let a version take effect, in place of the one before; without VERSION the dry run.

    \b
    Examples:
      pointsman policy enforce
      pointsman policy enforce 3
    """
    _change(access, "EnforcePolicy", version, output)


@policy.command(name="dry-run")
@_version
@output_option
@client_options
def dry_run(access: Access, version: int, output: str) -> None:
    """Let a version take no effect and only tell what it would do; without VERSION the enforced one."""
    _change(access, "DryRunPolicy", version, output)


@policy.command()
@_version
@output_option
@client_options
def rollback(access: Access, version: int, output: str) -> None:
    """Enforce what was enforced before; with VERSION that one."""
    _change(access, "RollBackPolicy", version, output)


def _change(access: Access, method: str, version: int, output: str) -> None:
    from pointsman.rpc.gen import policies_pb2

    with access.open() as gateway:
        call = getattr(gateway.policies, method)
        found: PolicyRecord = gateway.call(call, policies_pb2.PolicyVersionRequest(version=version))
    state = "is enforced" if found.state == "enforced" else "is a dry run"
    show(output, [f"Policy {found.version} {state}, with {_counted(found.rule_count)}"], _json(found))


@policy.command()
@click.argument("file", metavar="FILE")
@click.argument("body", metavar="BODY", default="")
@click.option("--route", default="", metavar="NAME", help="Where it is sent; by default the body's model.")
@click.option("--key", default="", metavar="NAME", help="Whose key sends it; sandbox:NAME for a sandbox's token.")
@click.option("--dialect", type=click.Choice(DIALECTS), default=DIALECTS[0], show_default=True, help="How it speaks.")
@click.option("--answer", "is_answer", is_flag=True, help="BODY is a JSON answer: try the rules about answers.")
@output_option
def test(file: str, body: str, output: str, *, is_answer: bool, **asked: str) -> None:
    """Say which rules of a file match a request's body, and where; without BODY, whether the file is good.

    Nothing is contacted. '-' is standard input. Exits with 1 when it would be refused.

    \b
    Examples:
      pointsman policy test policy.yaml
      pointsman policy test policy.yaml body.json --route fast --key laptop
      pointsman policy test policy.yaml answer.json --answer --route fast
    """
    pattern_check = _pattern_check()
    if pattern_check is None:
        raise click.ClickException("patterns need what the gateway needs; install pointsman[gateway]")
    rules = _rules(file, pattern_check)
    if not body:
        show(output, [f"{told(file)}: ok, {_counted(len(rules))}"], {"ok": True, "rules": len(rules)})
        return
    data = _body(body)
    decision, refusal = _decide(rules, data, asked, Side.RESPONSE if is_answer else Side.REQUEST)
    document = {
        "blocked_by": decision.blocked_by or None,
        "refused": refusal or None,
        "redacts": decision.body is not None,
        "hits": [{"rule": hit.rule, "effect": str(hit.would), "place": hit.place} for hit in decision.hits],
    }
    show(output, _told_decision(decision, refusal), document)
    sys.exit(1 if decision.blocked_by or refusal else 0)


def _decide(rules: tuple[Rule, ...], data: bytes, asked: dict[str, str], side: Side) -> "tuple[Decision, str]":
    from pointsman.routing.policy import PASSED, Unsearchable, compile_patterns, compile_policy, evaluate

    policy = Policy(ANYBODY.account, 1, rules, is_enforced=True)
    try:
        route = asked["route"] or read_model(data) or ""
    except MalformedRequest:
        route = ""
    patterns = compile_patterns(policy, side)
    compiled = compile_policy(policy, patterns, _caller(asked["key"]), route, asked["dialect"], side)
    if compiled is None:
        return PASSED, ""
    try:
        return evaluate(compiled, data), ""
    except Unsearchable as error:
        return PASSED, str(error)


def _caller(shown: str) -> Caller:
    if not shown:
        return ANYBODY
    kind, _, name = shown.rpartition(":")
    return Caller(ANYBODY.account, name, SANDBOX_TOKEN if kind == SANDBOX_TOKEN else KEY)


def _told_decision(decision: "Decision", refusal: str) -> list[str]:
    rows = [(hit.rule, str(hit.would), hit.place or "the request") for hit in decision.hits]
    lines = table(_HIT_HEAD, rows) if rows else ["No rule matches"]
    if refusal:
        lines = [f"Refused: {refusal}"]
    elif decision.blocked_by:
        lines.append(f"Refused by {decision.blocked_by}")
    elif decision.body is not None:
        lines.append("Passes with [redacted] in these places")
    return lines


def _pattern_check() -> Callable[[str], str] | None:
    try:
        from pointsman.routing.text_patterns import pattern_problem
    except ImportError:
        return None
    return pattern_problem


def _pattern_cost() -> Callable[[str], tuple[int, int]]:
    try:
        from pointsman.routing.text_patterns import pattern_cost
    except ImportError:  # the gateway will say
        return lambda _: (0, 0)
    return pattern_cost


def _rules(file: str, pattern_problem: Callable[[str], str]) -> tuple[Rule, ...]:
    name = "<stdin>" if file == _STANDARD_INPUT else file
    try:
        data = sys.stdin.buffer.read(_LARGEST_BODY) if file == _STANDARD_INPUT else read_bytes(file)[0]
        check = check_policy_text(decode(data), pattern_problem, _pattern_cost())
    except Unreadable as error:
        check = PolicyFileCheck((), (error.problem,))
    if check.problems:
        raise click.ClickException("\n".join(problem.describe(name) for problem in check.problems))
    return check.rules


def _body(file: str) -> bytes:
    if file == _STANDARD_INPUT:
        return sys.stdin.buffer.read(_LARGEST_BODY + 1)
    try:
        with open(file, "rb") as opened:
            return opened.read(_LARGEST_BODY + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not a path"
        raise click.ClickException(f"{told(file)}: {reason.lower()}; check the path") from None


def _counted(rules: int) -> str:
    return f"{rules} rule{'' if rules == 1 else 's'}"


def _row(record: "PolicyRecord") -> Sequence[str]:
    enforced = moment(record.enforced_at_ms) or "never"
    return str(record.version), record.state, str(record.rule_count), moment(record.created_at_ms) or "", enforced


def _rule_pairs(rule: Any) -> list[tuple[str, str]]:
    pairs = [("Effect", rule.effect), ("Side", rule.side)]
    for name in ("routes", "keys", "dialects", *CONDITIONS):
        value = getattr(rule, name)
        if value:
            pairs.append(
                (name.replace("_", " ").capitalize(), str(value) if isinstance(value, (str, int)) else ", ".join(value))
            )
    return pairs


def _json(record: "PolicyRecord", *, with_rules: bool = True) -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": record.version,
        "state": record.state,
        "rule_count": record.rule_count,
        "created_at": moment(record.created_at_ms),
        "enforced_at": moment(record.enforced_at_ms),
    }
    if with_rules:
        document["rules"] = [_rule_json(each) for each in record.rules]
    return document


def _rule_json(rule: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"id": rule.id, "side": rule.side, "effect": rule.effect}
    for name in ("routes", "keys", "dialects", *CONDITIONS):
        value = getattr(rule, name)
        if value:
            document[name] = value if isinstance(value, (str, int)) else list(value)
    return document

"""One route of a configuration file: a chain. Owns the rules for each key; pure.

Other kinds are not the file's: direct routes are made by command, and a runner is never in a chain.
"""

from collections.abc import Mapping as ByName

from pointsman.config.file_entry import FileEntry, Keys, as_written
from pointsman.config.problems import Problem
from pointsman.config.provider_entry import MOCK, ProviderEntry
from pointsman.config.wording import nearest, shown
from pointsman.config.yaml_positions import STRING, Mapping, Node, Scalar, Sequence
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.context_options import LONGEST_CONTEXT, ContextOptions, read_context
from pointsman.core.profiles import LOCAL_GGUF
from pointsman.core.route import (
    CHAIN,
    DIRECT,
    LONGEST_MODEL,
    LONGEST_TIMEOUT_SECONDS,
    RESERVED_NAMES,
    Route,
    RouteCandidate,
)

RUNNER = "runner"
IN_ORDER, WEIGHTED, LEAST_USED = "in_order", "weighted", "least_used"
STRATEGIES = (IN_ORDER, WEIGHTED, LEAST_USED)
_STRATEGY_HABITS = {
    "chainofresponsibility": IN_ORDER,
    "inorder": IN_ORDER,
    "weightedroundrobin": WEIGHTED,
    "weighted": WEIGHTED,
    "leastused": LEAST_USED,
}
"""Spellings without case and underscores."""
KEYS = Keys(
    ("name", "kind", "candidates", "strategy", "fallback", "request_timeout", "context"),
    {"providers": "candidates", "members": "candidates", "timeout": "request_timeout", "route": "name"},
)
CANDIDATE_KEYS = Keys(("provider", "model"), {"name": "provider", "model_id": "model"})
MOST_CANDIDATES = 64
_NO_RUNNER = "chains hold providers; a runner's model is a route of its own"

Providers = ByName[str, ProviderEntry | None]
"""The file's providers by name; None for one that is broken, which is already noted."""


def read_chain(entry: FileEntry, providers: Providers, *, forwards_model: bool = False) -> Route | None:
    """The route, or None if anything is wrong with the entry, which is noted.

    With `forwards_model` the client's model name is sent, so that no provider needs one of its own.
    """
    before = len(entry.findings.problems)
    name = _name(entry)
    entry.check_keys(KEYS)
    if not _is_chain(entry):
        return None
    candidates = _candidates(entry, providers)
    fallback = _fallback(entry, candidates, providers)
    strategy = _strategy(entry)
    timeout = entry.whole("request_timeout", LONGEST_TIMEOUT_SECONDS)
    context = _context(entry)
    if len(entry.findings.problems) > before:
        return None
    for provider, model, key in [*((c.provider_name, c.model, "candidates") for c in candidates), (fallback, "", "")]:
        _check_model(entry, providers.get(provider), model or ("*" if forwards_model else ""), key or "fallback")
    _warn_of_weights(entry, strategy, [providers.get(each.provider_name) for each in candidates])
    if len(entry.findings.problems) > before:
        return None
    return Route(
        DEFAULT_ACCOUNT,
        name,
        "",
        "",
        version=1,
        kind=CHAIN,
        candidates=tuple(candidates),
        strategy=strategy,
        fallback=fallback,
        request_timeout_seconds=timeout,
        context=context,
        forwards_model=forwards_model,
        from_file=True,
    )


def _name(entry: FileEntry) -> str:
    name = entry.name("name")
    if name:
        entry.what = f"route{shown(name) or ' ' + name[:40]}"
    elif "name" not in entry:
        entry.problem("name", "it has no name", "add name; clients give it as their model")
    if name.lower().replace("_", "-") in RESERVED_NAMES:
        entry.problem(
            "name", "its name is reserved", f"take another; {' and '.join(RESERVED_NAMES)} are the sandboxes'"
        )
    return name


def _is_chain(entry: FileEntry) -> bool:
    kind = entry.text("kind", 64).lower()
    if kind == CHAIN or "kind" not in entry:
        return True
    if kind == DIRECT:
        entry.problem("kind", "a direct route is not made in a file", "use 'pointsman route create', or kind: chain")
    elif kind == RUNNER:
        entry.problem("kind", "this version does not know routes to runners yet", "remove it")
    elif kind:
        entry.problem("kind", f"unknown kind{shown(kind)}", "write kind: chain")
    return False


def _candidates(entry: FileEntry, providers: Providers) -> list[RouteCandidate]:
    node, word = entry.node("candidates"), entry.spelling("candidates")
    if node is None or (isinstance(node, Sequence) and not node.items):
        if "fallback" not in entry:
            entry.problem("candidates", f"it has no {word}", f"list its providers in {word}")
        return []
    if not isinstance(node, Sequence):
        entry.problem("candidates", f"{word} is {node.kind}, not a list", "write [{provider: NAME}, …]")
        return []
    if len(node.items) > MOST_CANDIDATES:
        entry.problem("candidates", f"{word} has {len(node.items)} entries; at most {MOST_CANDIDATES}", "drop some")
        return []
    found: list[RouteCandidate] = []
    for item in node.items:
        candidate = _candidate(entry, item, providers)
        if candidate is not None and candidate in found:
            _add(entry, item, f"lists {candidate.provider_name} twice with the same model", "keep one of them")
        elif candidate is not None:
            found.append(candidate)
    return found


def _candidate(entry: FileEntry, item: Node, providers: Providers) -> RouteCandidate | None:
    if isinstance(item, Scalar) and item.kind == STRING:
        return _known(entry, item.line, item.text.strip(), "", providers)
    if not isinstance(item, Mapping):
        _add(entry, item, f"has {item.kind} where a candidate belongs", "write {provider: NAME}")
        return None
    if RUNNER in item.entries:
        _add(entry, item, "has a runner in a chain", _NO_RUNNER)
        return None
    inner = FileEntry(f"{entry.what}: a candidate", item, entry.findings, as_written)
    inner.check_keys(CANDIDATE_KEYS)
    name, model = inner.name("provider"), inner.text("model", LONGEST_MODEL)
    if "provider" not in inner:
        inner.problem("provider", "it names no provider", "add provider: NAME")
    return _known(entry, inner.line_of("provider"), name, model, providers) if name else None


def _known(entry: FileEntry, line: int, name: str, model: str, providers: Providers) -> RouteCandidate | None:
    if name in providers:
        return RouteCandidate(name, model)
    if name.lower().startswith(f"{RUNNER}:"):
        reason, next_step = "has a runner in a chain", _NO_RUNNER
    else:
        by_case = {each.lower(): each for each in providers}
        near = by_case.get(nearest(name, by_case), "")
        reason = f"there is no provider{shown(name)} in this file"
        next_step = f"did you mean {near}?" if near else "add it to providers"
    entry.findings.problems.append(Problem(line, f"{entry.what}: {reason}", next_step, "candidates"))
    return None


def _add(entry: FileEntry, item: Node, reason: str, next_step: str) -> None:
    entry.findings.problems.append(Problem(item.line, f"{entry.what}: {reason}", next_step, "candidates"))


def _fallback(entry: FileEntry, candidates: list[RouteCandidate], providers: Providers) -> str:
    word = entry.spelling("fallback")
    if "fallback" not in entry:
        entry.warn("fallback", f"it has no {word}: when all providers fail, so does the request", f"add {word}")
        return ""
    name = entry.text("fallback", 4096)
    if not name or _known(entry, entry.line_of("fallback"), name, "", providers) is None:
        return ""
    if any(each.provider_name == name for each in candidates):
        entry.problem("fallback", f"{word} is one of its candidates too", "keep it in one of the two places")
    return name


def _strategy(entry: FileEntry) -> str:
    text, word = entry.text("strategy", 64), entry.spelling("strategy")
    if not text:
        return IN_ORDER
    folded = text.replace("_", "").replace("-", "").lower()
    if folded in _STRATEGY_HABITS:
        return _STRATEGY_HABITS[folded]
    known = _STRATEGY_HABITS.get(nearest(folded, _STRATEGY_HABITS), "")
    reason = f"unknown {word}{shown(text)}, so that in_order is used"
    entry.warn("strategy", reason, f"did you mean {known}?" if known else f"they are {', '.join(STRATEGIES)}")
    return IN_ORDER


def _context(entry: FileEntry) -> ContextOptions | None:
    try:
        return read_context(entry.text("context", LONGEST_CONTEXT))
    except ValueError as error:
        entry.problem("context", f"{entry.spelling('context')} is not understood", str(error))
        return None


def _check_model(entry: FileEntry, provider: ProviderEntry | None, model: str, key: str) -> None:
    if provider is None or model or provider.record.type in (LOCAL_GGUF, MOCK) or "MODEL" in provider.record.config:
        return
    reason = f"provider {provider.record.name} has no {provider.entry.spelling('model')}, and the route gives none"
    entry.problem(key, reason, f"add {provider.entry.spelling('model')} to the provider")


def _warn_of_weights(entry: FileEntry, strategy: str, members: list[ProviderEntry | None]) -> None:
    if strategy == WEIGHTED and members and not any(each is None or each.daily_requests for each in members):
        word = entry.spelling("daily_request_limit")
        reason = f"all its providers have {word} 0, so that weighted gives them nothing and the fallback answers alone"
        entry.warn("strategy", reason, f"set {word}, or take another {entry.spelling('strategy')}")

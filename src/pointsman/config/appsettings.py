"""InferRouter's appsettings.json, read as one chain named `default`.

Owns its spelling: comments, PascalCase keys, enumerations, and where its local model stands. It turns the file into the
tree that a file of our own would have, so that what the values mean, and what is wrong with them, is said in one place.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pointsman.config.problems import Problem
from pointsman.config.wording import nearest, shown
from pointsman.config.yaml_positions import NOTHING, STRING, Mapping, Node, Scalar, Sequence, read_document
from pointsman.core.profiles import LOCAL_GGUF

ROUTE = "default"
"""Name of the chain, and of the default route."""
_SECTION = "inferrouter"
_SECTION_KEYS = {
    "operationlogpath": "OperationLogPath",
    "routingstrategy": "RoutingStrategy",
    "hidemodels": "HideModels",
    "providers": "Providers",
    "finalfallback": "FinalFallback",
}
_PROVIDER_KEYS = {
    "Name": "name",
    "Type": "type",
    "BaseUrl": "base_url",
    "Model": "model",
    "ModelPath": "model_path",
    "DailyRequestLimit": "daily_request_limit",
    "RequestsPerMinute": "requests_per_minute",
    "ResetTimezone": "reset_timezone",
    "ErrorCodePath": "error_code_path",
    "ErrorMappings": "error_mappings",
    "ApiKey": "api_key",
}
_MAPPING_KEYS = {"HttpStatus": "http_status", "ErrorCode": "error_code", "InternalCategory": "category"}
_ROUTE_KEYS = {"strategy": "RoutingStrategy", "fallback": "FinalFallback", "candidates": "Providers"}
_SPELLING = {ours: theirs for keys in (_PROVIDER_KEYS, _MAPPING_KEYS) for theirs, ours in keys.items()}
_SPELLING |= {**_ROUTE_KEYS, "providers": "Providers"}
_ASP_NET = frozenset(
    {"logging", "allowedhosts", "kestrel", "serilog", "connectionstrings", "urls", "httpports", "httpsports"}
    | {"environment", "detailederrors", "forwardedheaders", "opentelemetry", "$schema"}
)
"""Sections of any ASP.NET program, which are not about inference."""
_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)|\t', re.S)
_TRUTHS = {"true": True, "false": False}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def spelling(key: str) -> str:
    """How this file spells one of our keys."""
    return _SPELLING.get(key, key)


@dataclass(slots=True)
class Appsettings:
    """What the file says, in our own words."""

    settings: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Line and text by our key: `operation_log.dir`, `default_route`."""
    records: dict[str, tuple[int, Node]] = field(default_factory=dict)
    """Line and tree of `providers` and `routes`."""
    hides_models: bool = False
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_appsettings(text: str) -> Appsettings:
    """Read the file. Never raises for any text: what is wrong is in `problems`."""
    reader = _Reader()
    document = read_document(_plain(text))
    reader.problems.extend(_in_json_words(each) for each in document.problems)
    if isinstance(document.root, Mapping):
        reader.read(document.root)
    elif not document.problems:
        line = document.root.line if document.root is not None else 0
        reader.problem(line, "the file is no JSON object", 'write {"InferRouter": {"Providers": […]}}')
    result = reader.result
    result.problems, result.warnings = tuple(reader.problems), tuple(reader.warnings)
    return result


def _plain(text: str) -> str:
    """The text without comments and tabs, every line where it was. Trailing commas are fine with the parser."""

    def replacement(match: re.Match[str]) -> str:
        token = match[0]
        return token if token.startswith('"') else " " + "\n" * token.count("\n")

    return _TOKENS.sub(replacement, text.removeprefix("\ufeff"))


def _in_json_words(problem: Problem) -> Problem:
    reason = problem.reason.replace("valid YAML", "valid JSON").replace("YAML document", "JSON document")
    next_step = problem.next_step
    if "colon" in next_step:
        next_step = "check the commas, quotes and brackets there"
    return replace(problem, reason=reason, next_step=next_step)


def _folded(key: str) -> str:
    """ASP.NET's keys are the same in any case; ours with underscores are understood as well."""
    return key.replace("_", "").lower()


class _Reader:
    """Turns the tree into ours."""

    def __init__(self) -> None:
        self.result = Appsettings()
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, line: int, reason: str, next_step: str) -> None:
        """Note what has to be mended."""
        self.problems.append(Problem(line, reason, next_step))

    def read(self, root: Mapping) -> None:
        """Take the whole file."""
        section = next((each for key, each in root.entries.items() if _folded(key) == _SECTION), None)
        if section is None:
            self._section(root, root.line, at_top=True)
        elif isinstance(section[1], Mapping):
            self._section(section[1], section[0], at_top=False)
        else:
            self.problem(section[0], f"InferRouter is {section[1].kind}, not an object", "write {…}")

    def _section(self, node: Mapping, line: int, *, at_top: bool) -> None:
        found: dict[str, tuple[int, Node]] = {}
        for key, (at, value) in node.entries.items():
            folded = _folded(key)
            if folded in _SECTION_KEYS and folded in found:
                self.problem(at, f"{_SECTION_KEYS[folded]} is given twice", "keep one; case does not count")
            elif folded in _SECTION_KEYS and value.kind != NOTHING:
                found[folded] = at, value
            elif folded not in _SECTION_KEYS and not (at_top and folded in _ASP_NET):
                self._unknown(key, at, _SECTION_KEYS.values(), "InferRouter")
        self._settings(found)
        self._records(found, line)

    def _unknown(self, key: str, line: int, known: Iterable[str], where: str) -> None:
        words = list(known)
        by_case = {each.lower(): each for each in words}
        near = by_case.get(nearest(_folded(key), by_case), "")
        next_step = f"did you mean {near}?" if near else f"the keys are {', '.join(words)}"
        self.warnings.append(Problem(line, f"unknown key{shown(key)} in {where} is not used", next_step))

    def _settings(self, found: dict[str, tuple[int, Node]]) -> None:
        self.result.settings["default_route"] = 0, ROUTE
        if "operationlogpath" in found:
            line, node = found["operationlogpath"]
            if isinstance(node, Scalar) and node.kind == STRING:
                self.result.settings["operation_log.dir"] = line, node.text
            else:
                self.problem(line, f"OperationLogPath is {node.kind}", "write the path of a directory")
        if "hidemodels" in found:
            line, node = found["hidemodels"]
            truth = _TRUTHS.get(node.text.strip().lower()) if isinstance(node, Scalar) else None
            if truth is None:
                self.problem(line, "HideModels is neither true nor false", "write true or false")
            self.result.hides_models = bool(truth)

    def _records(self, found: dict[str, tuple[int, Node]], line: int) -> None:
        at, given = found.get("providers", (line, Sequence(line, (), 1)))
        if not isinstance(given, Sequence):
            self.problem(at, f"Providers is {given.kind}, not an array", "write [{…}]")
            return
        providers = [self._renamed(each, _PROVIDER_KEYS, "a provider", _provider_value) for each in given.items]
        fallback = None
        if "finalfallback" in found:
            fallback_line, node = found["finalfallback"]
            if isinstance(node, Mapping):
                fallback = self._fallback(
                    self._renamed(node, _PROVIDER_KEYS, "FinalFallback", _provider_value), providers
                )
            else:
                self.problem(fallback_line, f"FinalFallback is {node.kind}, not an object", "write {…}")
        else:
            fallback = self._local_entry(providers)
        if not providers and (fallback is None or "finalfallback" in found):
            self.problem(at, "there are no Providers", "list at least one in Providers")
        self._put(at, providers, fallback, found.get("routingstrategy"))

    def _put(self, line: int, providers: list[Node], fallback: Node | None, strategy: tuple[int, Node] | None) -> None:
        records = [*providers, *([fallback] if fallback is not None else [])]
        self.result.records["providers"] = line, Sequence(line, tuple(records), 1)
        candidates = tuple(Scalar(each.line, _text(each, "name"), STRING) for each in providers if _text(each, "name"))
        entries: dict[str, tuple[int, Node]] = {
            "name": (line, Scalar(line, ROUTE, STRING)),
            "candidates": (line, Sequence(line, candidates, 1)),
        }
        if fallback is not None:
            entries["fallback"] = fallback.line, Scalar(fallback.line, _text(fallback, "name"), STRING)
        if strategy is not None:
            entries["strategy"] = strategy
        broken = len(candidates) < len(providers) or (fallback is not None and not _text(fallback, "name"))
        if not broken and (candidates or fallback is not None):  # what is broken is told of the providers
            self.result.records["routes"] = line, Sequence(line, (Mapping(line, entries, 1),), 1)

    def _fallback(self, node: Node, providers: list[Node]) -> Node:
        """The final fallback with a name of its own: the file may give it none, or one that a provider has."""
        if not isinstance(node, Mapping):
            return node
        taken = {_text(each, "name").lower() for each in providers}
        name = given = _text(node, "name") or "local"
        while name.lower() in taken:
            name += "-fallback"
        if name != given:
            reason = f"FinalFallback has the name of a provider, so that it is called {name} here"
            self.warnings.append(Problem(node.line, reason, f"its key, if it needs one, is in the file {name}_api_key"))
        entries = {**node.entries, "name": (node.line, Scalar(node.line, name, STRING))}
        return Mapping(node.line, entries, node.size)

    def _local_entry(self, providers: list[Node]) -> Node | None:
        """Version 1.0 had the local model as the last of `Providers`; taken out of the list."""
        local = [each for each in providers if _text(each, "type") == LOCAL_GGUF]
        if not local:
            return None
        if local[-1] is not providers[-1]:
            reason = "a local model stands before other Providers, and is the last to be asked all the same"
            self.warnings.append(Problem(local[-1].line, reason, "move it to FinalFallback"))
        providers[:] = [each for each in providers if each is not local[-1]]
        return local[-1]

    def _renamed(
        self, node: Node, keys: dict[str, str], what: str, value: "Callable[[_Reader, str, Node], Node]"
    ) -> Node:
        """A mapping with our keys and values; what is unknown is left out, with a warning."""
        if not isinstance(node, Mapping):
            return node  # told of where it is read
        by_case = {_folded(theirs): ours for theirs, ours in keys.items()}
        entries: dict[str, tuple[int, Node]] = {}
        for key, (line, inner) in node.entries.items():
            ours = by_case.get(_folded(key), "")
            if not ours:
                self._unknown(key, line, keys, what)
            elif ours in entries:
                self.problem(line, f"{spelling(ours)} is given twice in {what}", "keep one; case does not count")
            elif not (isinstance(inner, Scalar) and inner.kind == STRING and not inner.text.strip()):
                entries[ours] = line, value(self, ours, inner)  # an empty text is none, as for a .NET program
        if "type" not in entries and keys is _PROVIDER_KEYS:
            entries["type"] = node.line, Scalar(node.line, "openai_compatible", STRING)
        return Mapping(node.line, entries, node.size)


def _provider_value(reader: _Reader, key: str, node: Node) -> Node:
    if key == "error_mappings" and isinstance(node, Sequence):
        items = tuple(reader._renamed(each, _MAPPING_KEYS, "an error mapping", _mapping_value) for each in node.items)
        return Sequence(node.line, items, node.size)
    return _in_our_words(node) if key == "type" else node


def _mapping_value(reader: _Reader, key: str, node: Node) -> Node:
    return _in_our_words(node) if key == "category" else node


def _in_our_words(node: Node) -> Node:
    """`OpenAiCompatible` as `openai_compatible`, `LocalGguf` as `local_gguf`, `RateLimit` as `rate_limit`."""
    if not isinstance(node, Scalar):
        return node
    text = _WORDS.sub("_", node.text.strip()).lower().replace("open_ai", "openai")
    known = {"openaicompatible": "openai_compatible", "localgguf": LOCAL_GGUF}
    return replace(node, text=known.get(_folded(text), text))


def _text(node: Node, key: str) -> str:
    if not isinstance(node, Mapping) or key not in node.entries:
        return ""
    inner = node.entries[key][1]
    return inner.text.strip() if isinstance(inner, Scalar) and inner.kind == STRING else ""

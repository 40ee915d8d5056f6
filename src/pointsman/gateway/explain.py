"""Operation: what would become of a request, without sending it.

Owns whom to ask: the listener's own rules, its ledger and what its strategies remember, the store for the way of a
sandbox and for what is not served, key files for whether they can be read. What a plan comes to is `routing.explain`'s.
Nothing here sends, counts, or changes what is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import msgspec

from pointsman.config.secrets import SecretUnreadable, read_secret
from pointsman.core.attempts import Chain, Member
from pointsman.core.caller import Caller
from pointsman.core.candidate import INFERENCE_LOCAL, Candidate
from pointsman.core.control_errors import ControlError, InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.errors import BodyTooLarge, MalformedRequest, NotConfigured, RouterError
from pointsman.core.explanation import (
    Denial,
    ExplainedCandidate,
    Explanation,
    KeyFact,
    KeyState,
    Question,
    RunnerFact,
    Step,
)
from pointsman.core.limits import Limits
from pointsman.core.model_errors import InvalidKey, NoProviderAvailable, NoSuchModel
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Counters, QuotaKey
from pointsman.core.route import ALIAS, CHAIN, DIRECT, LONGEST_MODEL, RUNNER, Route
from pointsman.core.runner_errors import RunnerError
from pointsman.core.runner_model import RunnerModel
from pointsman.core.secret import Secret
from pointsman.gateway.data_listener import HEALTH_PATH, DataListener
from pointsman.gateway.listed_models import MODELS_PATH
from pointsman.gateway.named_routes import named_route
from pointsman.gateway.route_members import providers_of, usable_target
from pointsman.gateway.runners import Presence
from pointsman.proxy.backends.runner import body_for_runner
from pointsman.proxy.forwarded_models import model_to_forward
from pointsman.proxy.model_reception import told_of
from pointsman.routing.chain_plan import earliest_recovery
from pointsman.routing.explain import Asked, Circumstances, explain_candidate, explain_chain, explain_runner
from pointsman.routing.members import chain_of
from pointsman.routing.pattern import match_pattern
from pointsman.routing.plan import select_candidate
from pointsman.routing.registered_models import PROVIDER_PREFIX
from pointsman.routing.resolve import NoSuchProvider, Unresolvable, key_file_of, resolve
from pointsman.store.interface import Reader, Store
from pointsman.wire.json_model import read_model, splice_model
from pointsman.wire.request import RequestHead, parse_head

MOST_HEADERS = 100
"""Names that are asked about at once: what a listener takes of fields (`Limits.head_fields`)."""
_UNNEEDED = KeyFact(KeyState.NOT_NEEDED)
_PLACEHOLDER = Secret("none")
"""What a record has in place of a key for a server that wants none."""


@dataclass(frozen=True, slots=True)
class _Sender:
    """Whose request it would be."""

    account: str
    digest: bytes = b""
    """Of the key or token that it would show; empty for none."""
    own_route: str = ""
    """Of a sandbox's token that has one."""
    is_valid: bool = True


class Explain:
    """`clock` tells seconds since the epoch, `presence` which runners are there."""

    def __init__(self, store: Store, clock: Callable[[], float], presence: Presence) -> None:
        self._store = store
        self._clock = clock
        self._presence = presence
        self._listener: DataListener | None = None
        self._rng = Random()  # noqa: S311  # breaks ties of plans that nobody carries out

    def look_at(self, listener: DataListener) -> None:
        """From now on, explain what this listener does."""
        self._listener = listener

    async def explain(self, account: str, question: Question) -> Explanation:
        """What would become of it. Raises InvalidRequest, NotFound (a key, a token) or NotPossibleNow."""
        if self._listener is None:
            raise NotPossibleNow("the data listener is not there yet; try again in a moment")
        _check(question)
        async with self._store.read() as reader:
            sender = await self._sender(reader, account, question)
            looking = _Looking(self._listener, reader, self._presence, self._clock(), self._rng, question)
            if question.model == INFERENCE_LOCAL or (question.sandbox and not question.model):
                return await looking.from_sandbox(sender)
            return await looking.at_listener(sender, question.model, ())

    async def _sender(self, reader: Reader, account: str, question: Question) -> _Sender:
        if question.key_name:
            key = await reader.key(account, question.key_name)
            if key is None:
                raise NotFound(f"there is no key {question.key_name[:64]!r}; see: pointsman key list")
            return _Sender(account, key.digest)
        if question.sandbox:
            token = await reader.sandbox_token(account, question.sandbox)
            if token is None:
                raise NotFound(
                    f"there is no sandbox token {question.sandbox[:64]!r}; see: pointsman sandbox token list"
                )
            return _Sender(account, token.digest, token.route, is_valid=token.is_valid(self._clock()))
        return _Sender(account)


class _Looking:
    """One question, as of one moment."""

    def __init__(
        self, listener: DataListener, reader: Reader, presence: Presence, now: float, rng: Random, question: Question
    ) -> None:
        self._listener = listener
        self._presence = presence
        self._models = listener.served.models
        self._limits = listener.limits
        self._reader = reader
        self._now = now
        self._rng = rng
        self._question = question

    async def from_sandbox(self, sender: _Sender) -> Explanation:
        """What an agent's request to `inference.local` comes to."""
        route, steps = await self._way_of(sender)
        begun = self._begun(sender.account, INFERENCE_LOCAL, steps)
        try:
            if not sender.is_valid:
                raise InvalidKey("the sandbox's token is revoked or expired: it is given no routes")
            if route is None:
                raise NotConfigured(f"there is no route {_end_of(steps)}; set it with 'pointsman inference set'")
            await usable_target(self._reader, route)
            if route.kind != DIRECT or route.via_gateway or await self._has_key_file(route):
                if self._question.body is not None:
                    _check_body(self._question.body, self._limits)
                return await self.at_listener(sender, route.name, steps)
            return await self._called_by_sandbox(route, begun)
        except RouterError as error:
            return replace(begun, denial=_denial(error, error.text))
        except ControlError as error:  # the route is left out of bundles
            return replace(begun, denial=_denial(NotConfigured(), NotConfigured.text, error.text))

    async def _way_of(self, sender: _Sender) -> tuple[Route | None, tuple[Step, ...]]:
        steps: tuple[Step, ...] = ()
        if sender.own_route:
            steps = (Step(INFERENCE_LOCAL, "sandbox_token", sender.own_route),)
        route = await named_route(self._reader, sender.account, sender.own_route or INFERENCE_LOCAL)
        if route is not None and route.kind == ALIAS:
            steps = (*steps, Step(route.name, "alias", route.target))
            route = await named_route(self._reader, sender.account, route.target)
        return route, steps

    async def _has_key_file(self, route: Route) -> bool:
        """Whether only the gateway can call it."""
        provider = await self._reader.provider(route.account, route.provider_name)
        return provider is not None and bool(key_file_of(provider))

    async def _called_by_sandbox(self, route: Route, begun: Explanation) -> Explanation:
        """Raises RouterError, and ControlError for a route that cannot be resolved."""
        provider = await self._reader.provider(route.account, route.provider_name)
        if provider is None:
            raise NoSuchProvider(route.provider_name)
        candidate = resolve(route, provider).candidate()
        head = _head(self._question.path, self._limits)
        path = head.target.partition("?")[0]
        protocol = match_pattern(head.method, path, candidate.speaks)
        select_candidate((candidate,), protocol)
        body = self._question.body
        if body is not None:
            _check_body(body, self._limits)
        model = read_model(body) if body is not None and head.method != "GET" else None
        asked = Asked(model, head.target, body, self._question.headers, by_gateway=False)
        told = replace(self._direct(candidate, asked), provider=provider.name)
        begun = replace(begun, model=model if body is not None else INFERENCE_LOCAL, protocol=protocol)
        return replace(_led_to(begun, route), kind=route.kind, runs="sandbox", candidates=(told,))

    async def at_listener(self, sender: _Sender, model: str, steps: tuple[Step, ...]) -> Explanation:
        """What a request to the data listener comes to; `model` is empty when the body names it."""
        body = self._question.body
        if model or body is None:
            body = msgspec.json.encode({"model": model} if model else {})
        begun = self._begun(sender.account, model or None, steps)
        try:
            head = _head(self._question.path, self._limits)
            _check_served(head)
            caller, table = self._known(sender)
            admitted = self._models.admitted(head, caller, table)
            begun = replace(begun, account=caller.account, protocol=admitted.protocol)
            _check_size(body, self._limits)
            named = read_model(body)
            begun = replace(begun, model=named)
            target = admitted.choose(body)
            if isinstance(target, Chain) and target.forwards_model:
                model_to_forward(body, target)
            _check_body(body, self._limits)
            if isinstance(target, RunnerModel):
                most = self._listener.served.runner_limits.request_bytes
                body_for_runner(self._question.body or body, target.candidate.model, self._limits.json_keys, most)
        except RouterError as error:
            return replace(begun, denial=_denial(error, told_of(error), await self._not_served(error, begun)))
        if named not in table.targets:
            begun = replace(begun, steps=(*steps, Step(named or "", "default_route", table.default)))
        asked = Asked(named, head.target, body, self._question.headers)
        name = target.name if isinstance(target, Chain) else target.route
        route = await named_route(self._reader, caller.account, name)
        begun = replace(_led_to(begun, route), route=name, runs="gateway")
        if isinstance(target, Chain):
            return await self._along(target, asked, begun, route)
        if isinstance(target, RunnerModel):
            return await self._over_its_line(target, asked, begun)
        told = self._direct(target.candidate if isinstance(target, Member) else target, asked)
        if isinstance(target, Member):
            told = replace(told, key=_key_of_member(target))
        told = replace(told, provider=route.provider_name if route is not None else "")
        return replace(begun, kind=route.kind if route is not None else DIRECT, candidates=(told,))

    async def _over_its_line(self, model: RunnerModel, asked: Asked, begun: Explanation) -> Explanation:
        """One attempt at the model's runner, whatever comes of it; none while that is not connected."""
        there = await self._presence.connected(model.account, (model.runner_id,))
        name = model.candidate.provider.removeprefix(PROVIDER_PREFIX)
        runner = RunnerFact(model.runner_id, name, is_connected=model.runner_id in there)
        limits = self._listener.served.runner_limits
        found = replace(
            begun,
            kind=RUNNER,
            chunk_idle_seconds=limits.idle_seconds,
            total_seconds=limits.lifetime_seconds,
            candidates=(explain_runner(model, asked, runner, limits),),
        )
        if runner.is_connected:
            return found
        error = RunnerError("runner_offline")
        return replace(found, denial=_denial(error, error.told, f"no process of the gateway holds the line of {name}"))

    def _known(self, sender: _Sender) -> tuple[Caller, ModelTable]:
        """Raises InvalidKey. Who shows no key is anybody of the account who may come in."""
        if sender.digest:
            return self._models.known_by(sender.digest)
        return Caller(sender.account), self._models.of_account(sender.account)

    async def _along(self, chain: Chain, asked: Asked, begun: Explanation, route: Route | None) -> Explanation:
        ledger, now = self._listener.served.ledger, self._now

        def counters(member: Member) -> Counters:
            return ledger.counters(QuotaKey(chain.account, member.provider), member.quota, now)

        state = self._listener.state_of(chain)
        around = Circumstances(counters, _key_of_member, now, state, self._rng, self._limits)
        told, skipped = explain_chain(chain, begun.protocol, asked, around)
        found = replace(
            begun,
            kind=CHAIN,
            strategy=chain.strategy,
            request_timeout_seconds=chain.request_timeout_seconds,
            candidates=(*told, *(await self._left_out(chain, route))),
        )
        if found.is_tried:
            return found
        until = earliest_recovery(skipped, now)
        error = NoProviderAvailable(until - now if until is not None else None)
        return replace(found, denial=_denial(error, error.told))

    async def _left_out(self, chain: Chain, route: Route | None) -> tuple[ExplainedCandidate, ...]:
        """Whom the route names and the chain in use is without, since the record leads nowhere."""
        if route is None or route.kind != CHAIN:
            return ()
        served = {member.provider for member in chain.all_members}
        found: dict[str, str] = {}
        try:
            chain_of(
                route, await providers_of(self._reader, route), left_out=lambda name, error: _note(found, name, error)
            )
        except Unresolvable as error:
            found.setdefault("", error.text)
        return tuple(
            ExplainedCandidate(
                name, "", "", 0, skip_reason="unresolvable", skip_detail=text, is_fallback=name == route.fallback
            )
            for name, text in found.items()
            if name and name not in served
        )

    async def _not_served(self, error: RouterError, begun: Explanation) -> str:
        """Why a model that has a route is none, for the operator."""
        if not isinstance(error, NoSuchModel) or begun.model is None:
            return ""
        route = await named_route(self._reader, begun.account, begun.model)
        if route is None or route.kind == ALIAS:
            return ""
        try:
            await usable_target(self._reader, route)
        except ControlError as problem:
            return f"route {route.name} exists and is not served: {problem.text}"
        return f"route {route.name} exists and is not in force yet; ask again in a second"

    def _direct(self, target: Candidate | Member, asked: Asked) -> ExplainedCandidate:
        if isinstance(target, Member):
            return explain_candidate(target.candidate, asked, _key_of_member(target), self._limits)
        return explain_candidate(target, asked, _key_of(target), self._limits)

    def _begun(self, account: str, model: str | None, steps: tuple[Step, ...]) -> Explanation:
        return Explanation(
            account, model, self._question.path, steps=steps, chunk_idle_seconds=self._limits.chunk_idle_seconds
        )


def _led_to(begun: Explanation, route: Route | None) -> Explanation:
    return begun if route is None else replace(begun, route=route.name, version=route.version)


def _end_of(steps: tuple[Step, ...]) -> str:
    return steps[-1].to if steps else INFERENCE_LOCAL


def _note(found: dict[str, str], name: str, error: Unresolvable) -> None:
    found.setdefault(name, error.text)


def _denial(error: RouterError, text: str, detail: str = "") -> Denial:
    code = getattr(error, "code", "")
    detail = detail or (error.detail if error.detail not in (text, error.text, code) else error.hint)
    retry = error.retry_after_seconds if isinstance(error, NoProviderAvailable) else None
    return Denial(error.status, text, code, detail, retry)


def _check(question: Question) -> None:
    """Raises InvalidRequest for a question that cannot be meant."""
    if question.key_name and question.sandbox:
        raise InvalidRequest("a request comes with a key or from a sandbox; name one of them")
    if question.model == INFERENCE_LOCAL and question.key_name:
        raise InvalidRequest(f"{INFERENCE_LOCAL} is reached from sandboxes; name a sandbox's token instead of a key")
    if question.model and question.model != INFERENCE_LOCAL and question.body is not None:
        raise InvalidRequest("the body names the model; leave the model out, or the body")
    if not question.model and question.body is None and not question.sandbox:
        raise InvalidRequest("name a model, or give the body of a request; 'pointsman route list' shows the routes")
    if len(question.model) > LONGEST_MODEL:
        raise InvalidRequest(f"the model has {len(question.model)} characters; at most {LONGEST_MODEL}")
    if len(question.headers) > MOST_HEADERS:
        raise InvalidRequest(f"{len(question.headers)} header names; at most {MOST_HEADERS}")


def _head(target: str, limits: Limits) -> RequestHead:
    """The head of a request to a path, held to the grammar of a client's. Raises RouterError."""
    method = "GET" if target.partition("?")[0].startswith(MODELS_PATH) else "POST"
    if not target.startswith("/") or not target.isascii() or not target.isprintable() or "#" in target:
        raise MalformedRequest("request target is not a path")
    return parse_head(f"{method} {target} HTTP/1.1\r\nHost: {INFERENCE_LOCAL}\r\n".encode(), limits)


def _check_served(head: RequestHead) -> None:
    """Raises InvalidRequest for what a listener answers itself, without a route."""
    path = head.target.partition("?")[0]
    if path in (HEALTH_PATH, MODELS_PATH) or path.startswith(MODELS_PATH + "/"):
        raise InvalidRequest(f"{path[:64]} is answered by the gateway itself; no provider is asked")


def _check_size(body: bytes, limits: Limits) -> None:
    if len(body) > limits.body_bytes:
        raise BodyTooLarge


def _check_body(body: bytes, limits: Limits) -> None:
    """Raises what a body is refused with when its model is put in place: BodyTooLarge or MalformedRequest."""
    _check_size(body, limits)
    splice_model(body, b'""', limits.json_keys)


def _key_of_member(member: Member) -> KeyFact:
    if not member.key_file:
        return _key_of(member.candidate)
    try:
        read_secret(Path(member.key_file))
    except SecretUnreadable as error:
        return KeyFact(KeyState.MISSING, "file", str(error))
    return KeyFact(KeyState.READABLE, "file")


def _key_of(candidate: Candidate) -> KeyFact:
    if candidate.api_key == _PLACEHOLDER or candidate.is_confined:
        return _UNNEEDED
    if candidate.api_key is not None:
        return KeyFact(KeyState.READABLE, "record")
    if candidate.endpoint.scheme in ("http", "https"):
        return KeyFact(KeyState.MISSING, "record", "the provider's record has no key")
    return _UNNEEDED

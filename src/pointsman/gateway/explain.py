"""Operation: what would become of a request, without sending it.

Owns the way: a sandbox's, the listener's own rules, then the stages and the attempts between them. Whom stages ask is
`explained_stages`', whom a route leads to `explained_attempts`'. Nothing here sends, counts, or changes what is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import msgspec

from pointsman.core.attempts import Chain
from pointsman.core.caller import Caller
from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.control_errors import ControlError, NotFound, NotPossibleNow
from pointsman.core.data_key import DataKey
from pointsman.core.errors import NotConfigured, RouterError
from pointsman.core.explanation import Denial, ExplainedStage, Explanation, Question, StageDecision, Step
from pointsman.core.model_errors import (
    AccountHalted,
    BudgetExhausted,
    BudgetUncounted,
    InvalidKey,
    ModelNotAuthorized,
    NoProviderAvailable,
    NoSuchModel,
    SourceNotAllowed,
)
from pointsman.core.model_table import ModelTable
from pointsman.core.route import ALIAS, DIRECT, Route
from pointsman.core.sandbox_token import SandboxToken
from pointsman.gateway.data_listener import DataListener
from pointsman.gateway.explained_attempts import Attempts, Found, explained
from pointsman.gateway.explained_question import check, check_body, check_served, check_size, head_of
from pointsman.gateway.explained_stages import Arriving, ExplainedStages, Met, refused_at_the_door
from pointsman.gateway.named_routes import named_route
from pointsman.gateway.route_members import usable_target
from pointsman.gateway.runners import Presence
from pointsman.proxy.model_reception import told_of
from pointsman.routing.explain import Asked
from pointsman.routing.explain_stages import ATTEMPTS, authorize_stage
from pointsman.routing.pattern import match_pattern
from pointsman.routing.plan import select_candidate
from pointsman.routing.resolve import NoSuchProvider, key_file_of, resolve
from pointsman.store.interface import Reader, Store
from pointsman.wire.json_model import read_model, splice_model

_TELLING_WHEN = (NoProviderAvailable, BudgetExhausted, BudgetUncounted)


@dataclass(frozen=True, slots=True)
class _Sender:
    """Whose request it would be."""

    account: str
    identity: DataKey | SandboxToken | None = None
    """What it would show; None for nothing."""

    @property
    def own_route(self) -> str:
        """Of a sandbox's token that has one."""
        return self.identity.route if isinstance(self.identity, SandboxToken) else ""


class Explain:
    """`clock` tells seconds since the epoch, `presence` which runners are there."""

    def __init__(self, store: Store, clock: Callable[[], float], presence: Presence) -> None:
        self._store = store
        self._clock = clock
        self._presence = presence
        self._listener: DataListener | None = None
        self._stages: ExplainedStages | None = None
        self._rng = Random()  # noqa: S311  # breaks ties of plans that nobody carries out

    def look_at(self, listener: DataListener, stages: ExplainedStages | None = None) -> None:
        """From now on, explain what this listener does, and the stages around its requests."""
        self._listener, self._stages = listener, stages

    async def explain(self, account: str, question: Question) -> Explanation:
        """What would become of it. Raises InvalidRequest, NotFound (a key, a token) or NotPossibleNow."""
        if self._listener is None:
            raise NotPossibleNow("the data listener is not there yet; try again in a moment")
        check(question)
        async with self._store.read() as reader:
            sender = await self._sender(reader, account, question)
            attempts = Attempts(self._listener, reader, self._presence, self._clock(), self._rng)
            looking = _Looking(attempts, self._stages, question)
            if question.model == INFERENCE_LOCAL or (question.sandbox and not question.model):
                return await looking.from_sandbox(sender)
            return await looking.at_listener(sender, question.model, ())

    async def _sender(self, reader: Reader, account: str, question: Question) -> _Sender:
        if question.key_name:
            key = await reader.key(account, question.key_name)
            if key is None:
                raise NotFound(f"there is no key {question.key_name[:64]!r}; see: pointsman key list")
            return _Sender(account, key)
        if question.sandbox:
            token = await reader.sandbox_token(account, question.sandbox)
            if token is None:
                raise NotFound(
                    f"there is no sandbox token {question.sandbox[:64]!r}; see: pointsman sandbox token list"
                )
            return _Sender(account, token)
        return _Sender(account)


class _Looking:
    """One question, as of one moment."""

    def __init__(self, attempts: Attempts, stages: ExplainedStages | None, question: Question) -> None:
        self._attempts = attempts
        self._stages = stages
        self._models = attempts.listener.served.models
        self._limits = attempts.listener.limits
        self._reader = attempts.reader
        self._now = attempts.now
        self._question = question

    async def from_sandbox(self, sender: _Sender) -> Explanation:
        """What an agent's request to `inference.local` comes to."""
        route, steps = await self._way_of(sender)
        begun = self._begun(sender.account, INFERENCE_LOCAL, steps)
        try:
            if sender.identity is not None and not sender.identity.is_valid(self._now):
                raise InvalidKey("the sandbox's token is revoked or expired: it is given no routes")
            if await self._is_halted(sender.account):
                raise NotConfigured(f"the account {sender.account} is halted: its sandboxes are given no routes")
            if route is None:
                raise NotConfigured(f"there is no route {_end_of(steps)}; set it with 'pointsman inference set'")
            await usable_target(self._reader, route)
            if route.kind != DIRECT or route.via_gateway or await self._has_key_file(route):
                if self._question.body is not None:
                    check_body(self._question.body, self._limits)
                return await self.at_listener(sender, route.name, steps)
            return await self._called_by_sandbox(route, begun)
        except RouterError as error:
            return replace(begun, denial=denial_of(error, error.text))
        except ControlError as error:  # the route is left out of bundles
            return replace(begun, denial=denial_of(NotConfigured(), NotConfigured.text, error.text))

    async def _way_of(self, sender: _Sender) -> tuple[Route | None, tuple[Step, ...]]:
        steps: tuple[Step, ...] = ()
        if sender.own_route:
            steps = (Step(INFERENCE_LOCAL, "sandbox_token", sender.own_route),)
        route = await named_route(self._reader, sender.account, sender.own_route or INFERENCE_LOCAL)
        if route is not None and route.kind == ALIAS:
            steps = (*steps, Step(route.name, "alias", route.target))
            route = await named_route(self._reader, sender.account, route.target)
        return route, steps

    async def _is_halted(self, account: str) -> bool:
        found = await self._reader.account(account)
        return found is not None and found.halted_at is not None

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
        head = head_of(self._question.path, self._limits)
        path = head.target.partition("?")[0]
        protocol = match_pattern(head.method, path, candidate.speaks)
        select_candidate((candidate,), protocol)
        body = self._question.body
        if body is not None:
            check_body(body, self._limits)
        model = read_model(body) if body is not None and head.method != "GET" else None
        asked = Asked(model, head.target, body, self._question.headers, by_gateway=False)
        told = replace(explained(candidate, asked, self._limits), provider=provider.name)
        begun = replace(begun, model=model if body is not None else INFERENCE_LOCAL, protocol=protocol)
        return replace(_led_to(begun, route), kind=route.kind, runs="sandbox", candidates=(told,))

    async def at_listener(self, sender: _Sender, model: str, steps: tuple[Step, ...]) -> Explanation:
        """What a request to the data listener comes to; `model` is empty when the body names it."""
        body = self._body(model)
        begun = self._begun(sender.account, model or None, steps)
        is_known = is_taken = False
        try:
            head = head_of(self._question.path, self._limits)
            check_served(head)
            caller, table = self._known(sender)
            is_known = True
            admitted = self._models.admitted(head, caller, table)
            begun = replace(begun, account=caller.account, protocol=admitted.protocol)
            check_size(body, self._limits)
            is_taken = True
            named = read_model(body)
            begun = replace(begun, model=named)
            target = admitted.choose(body)
        except RouterError as error:
            authorized = self._authorized(sender, error, is_known=is_known)
            stage = authorized.name if authorized.decision is StageDecision.REFUSES else ""
            denial = denial_of(error, told_of(error), await self._not_served(error, begun), stage)
            stages = (
                refused_at_the_door(begun.account, authorized, is_recorded=is_taken) if self._stages is not None else ()
            )
            return replace(begun, denial=denial, stages=stages)
        if named not in table.targets:
            begun = replace(begun, steps=(*steps, Step(named or "", "default_route", table.default)))
        name = target.name if isinstance(target, Chain) else target.route
        is_given = self._question.body is not None
        arriving = Arriving(caller, name, admitted.protocol, admitted.target.path, target, body, is_given)
        return await self._through_stages(
            sender, arriving, Asked(named, head.target, body, self._question.headers), begun
        )

    def _body(self, model: str) -> bytes:
        """As a client sends it; from a sandbox, as that sends it on."""
        body, named = self._question.body, msgspec.json.encode(model)
        if body is None:
            return b'{"model":%b}' % named if model else b"{}"
        return b"".join(splice_model(body, named, self._limits.json_keys)) if model else body

    async def _through_stages(
        self, sender: _Sender, arriving: Arriving, asked: Asked, begun: Explanation
    ) -> Explanation:
        route = await named_route(self._reader, arriving.caller.account, arriving.route)
        kind = route.kind if route is not None else ""
        begun = replace(_led_to(begun, route), route=arriving.route, kind=kind, runs="gateway")
        met = Met(arriving.body)
        if self._stages is not None:
            met = await self._stages.before(arriving, self._now)
        found, stage = Found(begun, met.error), met.stages[-1].name if met.error is not None else ATTEMPTS
        if met.error is None:
            try:
                self._attempts.check(arriving.target, met.body)
            except RouterError as error:
                found = Found(begun, error)
            else:
                found = await self._attempts.of(arriving.target, replace(asked, body=met.body), begun, route)
        made = found.told
        if found.error is not None:
            made = replace(made, denial=denial_of(found.error, told_of(found.error), found.detail, stage))
        if self._stages is None:
            return made
        authorized = self._authorized(sender, None, is_known=True)
        return replace(made, stages=self._stages.all(authorized, arriving, met, made.candidates, found.error))

    def _known(self, sender: _Sender) -> tuple[Caller, ModelTable]:
        """Raises as `Models.known_from` does. Who shows no key is anybody of the account who may come in."""
        if sender.identity is None:
            self._models.check_account(sender.account)
            return Caller(sender.account), self._models.of_account(sender.account)
        if self._question.address:
            return self._models.known_from(sender.identity.digest, self._question.address)
        return self._models.known_by(sender.identity.digest)

    def _authorized(self, sender: _Sender, error: RouterError | None, *, is_known: bool) -> ExplainedStage:
        """What is known of the sender. `error`: what is refused before all other stages."""
        refuses = isinstance(error, InvalidKey | AccountHalted | SourceNotAllowed | ModelNotAuthorized)
        decision = StageDecision.PASSES if is_known else StageDecision.NOT_REACHED
        return authorize_stage(
            sender.account,
            sender.identity,
            self._question.address,
            StageDecision.REFUSES if refuses else decision,
            is_halted=isinstance(error, AccountHalted),
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

    def _begun(self, account: str, model: str | None, steps: tuple[Step, ...]) -> Explanation:
        return Explanation(
            account, model, self._question.path, steps=steps, chunk_idle_seconds=self._limits.chunk_idle_seconds
        )


def _led_to(begun: Explanation, route: Route | None) -> Explanation:
    return begun if route is None else replace(begun, route=route.name, version=route.version)


def _end_of(steps: tuple[Step, ...]) -> str:
    return steps[-1].to if steps else INFERENCE_LOCAL


def denial_of(error: RouterError, text: str, detail: str = "", stage: str = "") -> Denial:
    """What a client hears of an error; `text` as the listener, or the sandbox, puts it."""
    code = getattr(error, "code", "")
    detail = detail or (error.detail if error.detail not in (text, error.text, code) else error.hint)
    retry = error.retry_after_seconds if isinstance(error, _TELLING_WHEN) else None
    return Denial(error.status, text, code, detail, retry, stage)

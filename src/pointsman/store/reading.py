"""Records out of rows, within one transaction. Which transaction, and when it ends: sql."""

import ipaddress
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Executable, Row, Select, func, or_, select, true
from sqlalchemy.engine import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection

from pointsman.core.account import Account
from pointsman.core.ai_model import AiModel
from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.chain import ChainHead
from pointsman.core.context_options import read_context
from pointsman.core.control_errors import ControlError, StoreUnavailable
from pointsman.core.data_key import DataKey
from pointsman.core.policy import PolicyState, PolicyVersion, Rule
from pointsman.core.price import NO_PRICES, Price, PriceChange, PriceTable, tables_of
from pointsman.core.provider import Provider
from pointsman.core.receipt import Receipt
from pointsman.core.route import Route, RouteCandidate
from pointsman.core.runner import Runner
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.core.usage_row import UsageRow
from pointsman.core.usage_sum import MOST_SUMS, Period, RowPlace, UsageBy, UsagePage, UsageSum
from pointsman.store.audit_rows import HEAD, entry_of, head_of, selected
from pointsman.store.credentials import CredentialCipher, WrongKey
from pointsman.store.problems import FAILURES, problem_of
from pointsman.store.receipt_rows import noted_head, page_of_receipts, receipt_of_request
from pointsman.store.tables import (
    accounts,
    ai_models,
    budgets,
    generation,
    keys,
    policies,
    price_changes,
    provider_credentials,
    providers,
    routes,
    runners,
    sandbox_tokens,
    usage,
)
from pointsman.store.usage_statements import DAY_SECONDS, rows_page, sum_of, sums

_T = TypeVar("_T")
_token_columns = (
    sandbox_tokens.c.account,
    sandbox_tokens.c.name,
    sandbox_tokens.c.digest,
    sandbox_tokens.c.route,
    sandbox_tokens.c.created_at,
    sandbox_tokens.c.expires_at,
    sandbox_tokens.c.revoked_at,
)
_runner_columns = tuple(runners.c[field.name] for field in fields(Runner))
_model_columns = tuple(ai_models.c[field.name] for field in fields(AiModel))
_usage_columns = tuple(usage.c[name] for name in UsageRow._fields)
CURRENT_GENERATION = select(generation.c.value)


class SqlReader:
    """The Reader of `interface`. One task at a time may use it."""

    def __init__(self, connection: AsyncConnection, cipher: CredentialCipher) -> None:
        self._connection = connection
        self._cipher = cipher
        self.failure: ControlError | None = None
        """Of the first statement that failed: after it the transaction is not whole."""

    async def _execute(self, statement: Executable, many: Any = None) -> CursorResult[*tuple[Any, ...]]:
        try:
            return await self._connection.execute(statement, many)
        except FAILURES as error:
            problem = problem_of(error)
        self.failure = self.failure or problem
        raise problem

    async def generation(self) -> int:
        return int((await self._execute(CURRENT_GENERATION)).scalar_one())

    async def provider(self, account: str, name: str) -> Provider | None:
        found = await self._providers((providers.c.account == account) & (providers.c.name == name), 1, 0)
        return found[0] if found else None

    async def providers(self, account: str, limit: int, offset: int) -> Sequence[Provider]:
        return await self._providers(providers.c.account == account, limit, offset)

    async def _providers(self, condition: ColumnElement[bool], limit: int, offset: int) -> Sequence[Provider]:
        page = select(providers).where(condition).order_by(providers.c.name).limit(limit).offset(offset)
        rows = (await self._execute(page)).all()
        if not rows:
            return []
        ids = page.with_only_columns(providers.c.id).subquery()
        values = (
            select(provider_credentials)
            .join(ids, ids.c.id == provider_credentials.c.provider_id)
            .order_by(provider_credentials.c.provider_id, provider_credentials.c.position)
        )
        by_provider: dict[str, list[Row[Any]]] = defaultdict(list)
        for value in (await self._execute(values)).all():
            by_provider[value.provider_id].append(value)
        return [self._provider(row, by_provider[row.id]) for row in rows]

    def _provider(self, row: Row[Any], values: Sequence[Row[Any]]) -> Provider:
        return Provider(
            id=row.id,
            account=row.account,
            name=row.name,
            type=row.type,
            credentials=self._decrypted(row, values),
            config=msgspec.json.decode(row.config, type=dict[str, str]),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )

    def _decrypted(self, row: Row[Any], values: Sequence[Row[Any]]) -> Mapping[str, Secret]:
        credentials = {}
        for value in values:
            try:
                credentials[value.key] = self._cipher.decrypt(value.value, row.account, row.id, value.key)
            except WrongKey:
                _raise_altered(row.name, value.key)
        return credentials

    async def provider_names(self, account: str) -> Sequence[str]:
        statement = select(providers.c.name).where(providers.c.account == account).order_by(providers.c.name)
        return list((await self._execute(statement)).scalars())

    async def count_providers(self, account: str) -> int:
        statement = select(func.count()).select_from(providers).where(providers.c.account == account)
        return int((await self._execute(statement)).scalar_one())

    async def route(self, account: str, name: str) -> Route | None:
        found = await self._routes((routes.c.account == account) & (routes.c.name == name))
        return found[0] if found else None

    async def routes(self, account: str) -> Sequence[Route]:
        return await self._routes(routes.c.account == account)

    async def routes_to(self, account: str, provider_name: str) -> Sequence[Route]:
        # The text says which may; only the list of candidates itself says which do.
        quoted = msgspec.json.encode(provider_name).decode()
        uses = or_(
            routes.c.provider_name == provider_name,
            routes.c.fallback == provider_name,
            routes.c.candidates.contains(quoted, autoescape=True),
        )
        found = await self._routes((routes.c.account == account) & uses)
        return [each for each in found if provider_name in each.provider_names]

    async def _routes(self, condition: ColumnElement[bool]) -> Sequence[Route]:
        statement = select(routes).where(condition).order_by(routes.c.name)
        return [_route(row) for row in (await self._execute(statement)).all()]

    async def sandbox_token(self, account: str, name: str) -> SandboxToken | None:
        mine = (sandbox_tokens.c.account == account) & (sandbox_tokens.c.name == name)
        return _first(await self._tokens(select(*_token_columns).where(mine)))

    async def sandbox_tokens(self, account: str) -> Sequence[SandboxToken]:
        mine = select(*_token_columns).where(sandbox_tokens.c.account == account)
        return await self._tokens(mine.order_by(sandbox_tokens.c.name))

    async def sandbox_token_by_digest(self, digest: bytes) -> SandboxToken | None:
        return _first(await self._tokens(select(*_token_columns).where(sandbox_tokens.c.digest == digest)))

    async def _tokens(self, statement: Select[Any]) -> Sequence[SandboxToken]:
        return [SandboxToken(*row) for row in (await self._execute(statement)).all()]

    async def key(self, account: str, name: str) -> DataKey | None:
        return _first(await self._keys((keys.c.account == account) & (keys.c.name == name)))

    async def keys(self, account: str) -> Sequence[DataKey]:
        return await self._keys(keys.c.account == account)

    async def key_by_digest(self, digest: bytes) -> DataKey | None:
        return _first(await self._keys(keys.c.digest == digest))

    async def _keys(self, condition: ColumnElement[bool]) -> Sequence[DataKey]:
        rows = (await self._execute(select(keys).where(condition).order_by(keys.c.name))).all()
        return [_key(row) for row in rows]

    async def budget(self, account: str, name: str) -> Budget | None:
        return _first(await self._budgets((budgets.c.account == account) & (budgets.c.name == name)))

    async def budgets(self, account: str) -> Sequence[Budget]:
        return await self._budgets(budgets.c.account == account)

    async def _budgets(self, condition: ColumnElement[bool]) -> Sequence[Budget]:
        rows = (await self._execute(select(budgets).where(condition).order_by(budgets.c.name))).all()
        return [_budget(row) for row in rows]

    async def runner(self, account: str, runner_id: str) -> Runner | None:
        return _first(await self._runners((runners.c.account == account) & (runners.c.id == runner_id)))

    async def runners(self, account: str) -> Sequence[Runner]:
        return await self._runners(runners.c.account == account)

    async def runner_by_digest(self, digest: bytes) -> Runner | None:
        return _first(await self._runners(runners.c.token_digest == digest))

    async def _runners(self, condition: ColumnElement[bool]) -> Sequence[Runner]:
        found = select(*_runner_columns).where(condition).order_by(runners.c.name)
        return [Runner(*row) for row in (await self._execute(found)).all()]

    async def ai_model(self, account: str, model_id: str) -> AiModel | None:
        return _first(await self._models((ai_models.c.account == account) & (ai_models.c.id == model_id)))

    async def ai_model_by_alias(self, account: str, alias: str) -> AiModel | None:
        return _first(await self._models((ai_models.c.account == account) & (ai_models.c.alias == alias)))

    async def ai_models(self, account: str) -> Sequence[AiModel]:
        return await self._models(ai_models.c.account == account)

    async def ai_models_of(self, account: str, runner_id: str) -> Sequence[AiModel]:
        return await self._models((ai_models.c.account == account) & (ai_models.c.runner_id == runner_id))

    async def _models(self, condition: ColumnElement[bool]) -> Sequence[AiModel]:
        found = select(*_model_columns).where(condition).order_by(ai_models.c.alias)
        return [replace(AiModel(*row), context=read_context(row.context)) for row in (await self._execute(found)).all()]

    async def policies(self, account: str) -> Sequence[PolicyVersion]:
        newest_first = select(policies).where(policies.c.account == account).order_by(policies.c.version.desc())
        return [_policy(row) for row in (await self._execute(newest_first)).all()]

    async def policies_in_force(self) -> Sequence[PolicyVersion]:
        in_force = select(policies).where(policies.c.state != str(PolicyState.KEPT))
        ordered = in_force.order_by(policies.c.account, policies.c.state.desc())
        return [_policy(row) for row in (await self._execute(ordered)).all()]

    async def usage(self, account: str, since: float, limit: int) -> Sequence[UsageRow]:
        mine = (usage.c.account == account) & (usage.c.at >= since)
        newest = select(*_usage_columns).where(mine).order_by(usage.c.at.desc(), usage.c.id.desc()).limit(limit)
        return [UsageRow(*row) for row in (await self._execute(newest)).all()]

    async def usage_rows(self, account: str, period: Period, limit: int, after: RowPlace | None) -> UsagePage:
        rows = (await self._execute(rows_page(account, period, limit + 1, after))).all()
        page = tuple(UsageRow(*row[1:]) for row in rows[:limit])
        return UsagePage(page, RowPlace(page[-1].at, rows[limit - 1].id) if len(rows) > limit else None)

    async def usage_sums(
        self, account: str | None, by: Sequence[UsageBy], period: Period, limit: int = MOST_SUMS
    ) -> Sequence[UsageSum]:
        rows = (await self._execute(sums(account, by, period, limit, self._connection.dialect.name))).all()
        return [
            sum_of(row, tuple(_day(name) if each is UsageBy.DAY else name for each, name in zip(by, row, strict=False)))
            for row in rows
        ]

    async def price_tables(self) -> Mapping[str, PriceTable]:
        return tables_of(await self._last_price_changes(true()))

    async def price_table(self, account: str) -> PriceTable:
        of_account = await self._last_price_changes(price_changes.c.account == account)
        return tables_of(of_account).get(account, NO_PRICES)

    async def _last_price_changes(self, condition: ColumnElement[bool]) -> Sequence[PriceChange]:
        key = (price_changes.c.account, price_changes.c.provider, price_changes.c.model)
        last = select(key[0], func.max(price_changes.c.version).label("version")).where(condition).group_by(*key)
        found = last.subquery()
        mine = (price_changes.c.account == found.c.account) & (price_changes.c.version == found.c.version)
        statement = select(price_changes).join(found, mine).order_by(*key)
        return [_price_change(row) for row in (await self._execute(statement)).all()]

    async def price_changes(self, account: str, limit: int, before: int) -> Sequence[PriceChange]:
        older = (price_changes.c.account == account) & (price_changes.c.version < before)
        newest = select(price_changes).where(older).order_by(price_changes.c.version.desc()).limit(limit)
        return [_price_change(row) for row in (await self._execute(newest)).all()]

    async def receipts(self, account: str, after: int, limit: int, *, newest_first: bool) -> Sequence[Receipt]:
        return await page_of_receipts(self._execute, account, after, limit, newest_first=newest_first)

    async def receipt(self, account: str, request_id: str) -> Receipt | None:
        return await receipt_of_request(self._execute, account, request_id)

    async def receipt_head(self, account: str) -> ChainHead:
        return await noted_head(self._execute, account)

    async def account(self, name: str) -> Account | None:
        row = (await self._execute(select(accounts).where(accounts.c.name == name))).first()
        return None if row is None else _account(row)

    async def accounts(self) -> Sequence[Account]:
        rows = (await self._execute(select(accounts).order_by(accounts.c.name))).all()
        return [_account(row) for row in rows]

    async def audit(self, query: AuditQuery) -> Sequence[AuditEntry]:
        return [entry_of(row) for row in (await self._execute(selected(query))).all()]

    async def audit_head(self) -> ChainHead:
        return head_of((await self._execute(HEAD)).first())


def _account(row: Row[Any]) -> Account:
    return Account(row.name, row.created_at, row.halted_at)


def _first(found: Sequence[_T]) -> _T | None:
    return found[0] if found else None


def _route(row: Row[Any]) -> Route:
    return Route(
        account=row.account,
        name=row.name,
        provider_name=row.provider_name,
        model=row.model,
        timeout_seconds=row.timeout_seconds,
        version=row.version,
        kind=row.kind,
        candidates=tuple(
            RouteCandidate(*pair) for pair in msgspec.json.decode(row.candidates, type=list[tuple[str, str]])
        ),
        strategy=row.strategy,
        fallback=row.fallback,
        request_timeout_seconds=row.request_timeout_seconds,
        target=row.target,
        via_gateway=bool(row.via_gateway),
        context=read_context(row.context),
    )


def _budget(row: Row[Any]) -> Budget:
    return Budget(
        account=row.account,
        name=row.name,
        scope=BudgetScope(row.scope),
        subject=row.subject,
        unit=BudgetUnit(row.unit),
        amount=row.amount,
        window=BudgetWindow(row.span),
        time_zone=row.time_zone,
        is_hard=bool(row.is_hard),
        version=row.version,
        id=row.id,
    )


def _price_change(row: Row[Any]) -> PriceChange:
    price = Price(row.provider, row.model, row.input, row.output, row.cached_input, row.request)
    return PriceChange(row.account, row.version, row.at, price, bool(row.is_removed))


def _day(number: int) -> str:
    """Of days since the epoch."""
    return datetime.fromtimestamp(number * DAY_SECONDS, UTC).strftime("%Y-%m-%d")


def _key(row: Row[Any]) -> DataKey:
    return DataKey(
        account=row.account,
        name=row.name,
        digest=row.digest,
        created_at=row.created_at,
        permissions=msgspec.json.decode(row.permissions, type=tuple[str, ...]),
        routes=msgspec.json.decode(row.routes, type=tuple[str, ...]),
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        networks=tuple(map(ipaddress.ip_network, msgspec.json.decode(row.networks, type=list[str]))),
        user=row.owner,
    )


def _raise_altered(provider: str, key: str) -> NoReturn:
    raise StoreUnavailable(
        f"the stored credential {key} of provider {provider} was altered and cannot be decrypted; "
        "restore the database from a backup, or delete the provider and create it again"
    )


def _policy(row: Row[Any]) -> PolicyVersion:
    return PolicyVersion(
        account=row.account,
        version=row.version,
        rules=msgspec.json.decode(row.rules, type=tuple[Rule, ...]),
        created_at=row.created_at,
        state=PolicyState(row.state),
        enforced_at=row.enforced_at,
    )

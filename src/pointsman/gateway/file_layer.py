"""The store as the gateway sees it: what a configuration file defines lies beside what is stored.

Owns that both are one listing, and that nobody changes what is the file's by command. What the file says, and when it
is read again: config and the gateway's composition.
"""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pointsman.config.gateway_records import FileRecords
from pointsman.core.account import DEFAULT_ACCOUNT, Account
from pointsman.core.ai_model import AiModel
from pointsman.core.audit import AuditDraft, AuditEntry, AuditQuery
from pointsman.core.budget import Budget
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import DefinedInFile
from pointsman.core.data_key import DataKey
from pointsman.core.policy import PolicyVersion
from pointsman.core.price import PriceChange, PriceTable
from pointsman.core.provider import Provider
from pointsman.core.receipt import Receipt
from pointsman.core.route import Route
from pointsman.core.runner import Runner
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.usage_row import UsageRow
from pointsman.core.usage_sum import MOST_SUMS, Period, RowPlace, UsageBy, UsagePage, UsageSum
from pointsman.gateway.store_layer import StoreLayer
from pointsman.store.interface import Reader, Store, Writer

NO_RECORDS = FileRecords()


class FileLayer(StoreLayer):
    """A Store on top of another. Of two records with one name the file's is seen."""

    def __init__(self, store: Store, records: FileRecords = NO_RECORDS) -> None:
        super().__init__(store)
        self._file = _File(records)
        self._replaced = 0

    @property
    def records(self) -> FileRecords:
        """What lies beside the stored records now."""
        return self._file.records

    def replace(self, records: FileRecords) -> None:
        """Another file from now on; whatever is kept by the generation is made anew.

        Whoever calls it has asked `conflicts` before. Readers and writers that have begun keep what they began with.
        """
        self._file = _File(records)
        self._replaced += 1

    async def conflicts(self, records: FileRecords) -> tuple[str, ...]:
        """A line for each name that would be in the file and in the store. Raises StoreUnavailable."""
        async with self._store.read() as reader:
            providers = await reader.provider_names(DEFAULT_ACCOUNT)
            routes = [each.name for each in await reader.routes(DEFAULT_ACCOUNT)]
            models = [each.alias for each in await reader.ai_models(DEFAULT_ACCOUNT)]
        return (
            *(_conflict("provider", each.name) for each in records.providers if each.name in providers),
            *(_conflict("route", each.name) for each in records.routes if each.name in routes),
            *(_model_conflict(each.name) for each in records.routes if each.name in models),
        )

    async def generation(self) -> int:
        """The store's, and one more for every other file."""
        return await self._store.generation() + self._replaced

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        """A view of now."""
        file, replaced = self._file, self._replaced
        async with self._store.read() as reader:
            yield _LayeredReader(reader, file, replaced)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Writer]:
        """A transaction of the store's."""
        async with self._store.write() as writer:
            yield _LayeredWriter(writer, self._file, self._replaced)


class _File:
    """The records of one file by name."""

    def __init__(self, records: FileRecords) -> None:
        self.records = records
        self.providers = {each.name: each for each in records.providers}
        self.routes = {each.name: each for each in records.routes}

    def provider(self, account: str, name: str) -> Provider | None:
        return self.providers.get(name) if account == DEFAULT_ACCOUNT else None

    def route(self, account: str, name: str) -> Route | None:
        return self.routes.get(name) if account == DEFAULT_ACCOUNT else None


class _LayeredReader:
    def __init__(self, reader: Reader, file: _File, replaced: int) -> None:
        self._reader = reader
        self._file = file
        self._replaced = replaced

    async def generation(self) -> int:
        return await self._reader.generation() + self._replaced

    async def provider(self, account: str, name: str) -> Provider | None:
        return self._file.provider(account, name) or await self._reader.provider(account, name)

    async def providers(self, account: str, limit: int, offset: int) -> Sequence[Provider]:
        if account != DEFAULT_ACCOUNT or not self._file.providers:
            return await self._reader.providers(account, limit, offset)
        stored = await self._reader.provider_names(account)
        page = sorted({*stored, *self._file.providers})[offset : offset + limit]
        if not page:
            return []
        # In the store's own listing, what belongs to the page stands together.
        start, end = bisect_left(stored, page[0]), bisect_right(stored, page[-1])
        found = await self._reader.providers(account, end - start, start) if end > start else []
        by_name = {each.name: each for each in found} | self._file.providers
        return [by_name[name] for name in page]

    async def provider_names(self, account: str) -> Sequence[str]:
        stored = await self._reader.provider_names(account)
        return sorted({*stored, *self._file.providers}) if account == DEFAULT_ACCOUNT else stored

    async def count_providers(self, account: str) -> int:
        if account != DEFAULT_ACCOUNT or not self._file.providers:
            return await self._reader.count_providers(account)
        return len(await self.provider_names(account))

    async def route(self, account: str, name: str) -> Route | None:
        return self._file.route(account, name) or await self._reader.route(account, name)

    async def routes(self, account: str) -> Sequence[Route]:
        return self._beside(account, await self._reader.routes(account))

    async def routes_to(self, account: str, provider_name: str) -> Sequence[Route]:
        found = self._beside(account, await self._reader.routes_to(account, provider_name))
        return [each for each in found if provider_name in each.provider_names]

    def _beside(self, account: str, stored: Sequence[Route]) -> Sequence[Route]:
        if account != DEFAULT_ACCOUNT:
            return stored
        by_name = {each.name: each for each in stored} | self._file.routes
        return [by_name[name] for name in sorted(by_name)]

    async def sandbox_token(self, account: str, name: str) -> SandboxToken | None:
        return await self._reader.sandbox_token(account, name)

    async def sandbox_tokens(self, account: str) -> Sequence[SandboxToken]:
        return await self._reader.sandbox_tokens(account)

    async def sandbox_token_by_digest(self, digest: bytes) -> SandboxToken | None:
        return await self._reader.sandbox_token_by_digest(digest)

    async def key(self, account: str, name: str) -> DataKey | None:
        return await self._reader.key(account, name)

    async def keys(self, account: str) -> Sequence[DataKey]:
        return await self._reader.keys(account)

    async def key_by_digest(self, digest: bytes) -> DataKey | None:
        return await self._reader.key_by_digest(digest)

    async def budget(self, account: str, name: str) -> Budget | None:
        return await self._reader.budget(account, name)

    async def budgets(self, account: str) -> Sequence[Budget]:
        return await self._reader.budgets(account)

    async def runner(self, account: str, runner_id: str) -> Runner | None:
        return await self._reader.runner(account, runner_id)

    async def runners(self, account: str) -> Sequence[Runner]:
        return await self._reader.runners(account)

    async def runner_by_digest(self, digest: bytes) -> Runner | None:
        return await self._reader.runner_by_digest(digest)

    async def ai_model(self, account: str, model_id: str) -> AiModel | None:
        return await self._reader.ai_model(account, model_id)

    async def ai_model_by_alias(self, account: str, alias: str) -> AiModel | None:
        return await self._reader.ai_model_by_alias(account, alias)

    async def ai_models(self, account: str) -> Sequence[AiModel]:
        return await self._reader.ai_models(account)

    async def ai_models_of(self, account: str, runner_id: str) -> Sequence[AiModel]:
        return await self._reader.ai_models_of(account, runner_id)

    async def policies(self, account: str) -> Sequence[PolicyVersion]:
        return await self._reader.policies(account)

    async def policies_in_force(self) -> Sequence[PolicyVersion]:
        return await self._reader.policies_in_force()

    async def usage(self, account: str, since: float, limit: int) -> Sequence[UsageRow]:
        return await self._reader.usage(account, since, limit)

    async def usage_rows(self, account: str, period: Period, limit: int, after: RowPlace | None) -> UsagePage:
        return await self._reader.usage_rows(account, period, limit, after)

    async def usage_sums(
        self, account: str | None, by: Sequence[UsageBy], period: Period, limit: int = MOST_SUMS
    ) -> Sequence[UsageSum]:
        return await self._reader.usage_sums(account, by, period, limit)

    async def price_tables(self) -> Mapping[str, PriceTable]:
        return await self._reader.price_tables()

    async def price_table(self, account: str) -> PriceTable:
        return await self._reader.price_table(account)

    async def price_changes(self, account: str, limit: int, before: int) -> Sequence[PriceChange]:
        return await self._reader.price_changes(account, limit, before)

    async def receipts(self, account: str, after: int, limit: int, *, newest_first: bool) -> Sequence[Receipt]:
        return await self._reader.receipts(account, after, limit, newest_first=newest_first)

    async def receipt(self, account: str, request_id: str) -> Receipt | None:
        return await self._reader.receipt(account, request_id)

    async def receipt_head(self, account: str) -> ChainHead:
        return await self._reader.receipt_head(account)

    async def account(self, name: str) -> Account | None:
        return await self._reader.account(name)

    async def accounts(self) -> Sequence[Account]:
        return await self._reader.accounts()

    async def audit(self, query: AuditQuery) -> Sequence[AuditEntry]:
        return await self._reader.audit(query)

    async def audit_head(self) -> ChainHead:
        return await self._reader.audit_head()


class _LayeredWriter(_LayeredReader):
    def __init__(self, writer: Writer, file: _File, replaced: int) -> None:
        super().__init__(writer, file, replaced)
        self._writer = writer

    async def insert_provider(self, provider: Provider) -> None:
        self._check_provider(provider.account, provider.name)
        await self._writer.insert_provider(provider)

    async def replace_provider(self, provider: Provider) -> None:
        self._check_provider(provider.account, provider.name)
        await self._writer.replace_provider(provider)

    async def delete_provider(self, account: str, name: str) -> bool:
        self._check_provider(account, name)
        return await self._writer.delete_provider(account, name)

    async def put_route(self, route: Route) -> Route:
        self._check_route(route.account, route.name)
        return await self._writer.put_route(route)

    async def delete_route(self, account: str, name: str) -> bool:
        self._check_route(account, name)
        return await self._writer.delete_route(account, name)

    def _check_provider(self, account: str, name: str) -> None:
        if self._file.provider(account, name) is not None:
            raise DefinedInFile("provider", name)

    def _check_route(self, account: str, name: str) -> None:
        if self._file.route(account, name) is not None:
            raise DefinedInFile("route", name)

    async def insert_sandbox_token(self, token: SandboxToken) -> None:
        await self._writer.insert_sandbox_token(token)

    async def revoke_sandbox_token(self, account: str, name: str, now: float) -> bool:
        return await self._writer.revoke_sandbox_token(account, name, now)

    async def insert_key(self, key: DataKey) -> None:
        await self._writer.insert_key(key)

    async def revoke_key(self, account: str, name: str, now: float) -> bool:
        return await self._writer.revoke_key(account, name, now)

    async def insert_budget(self, budget: Budget) -> None:
        await self._writer.insert_budget(budget)

    async def replace_budget(self, budget: Budget) -> bool:
        return await self._writer.replace_budget(budget)

    async def delete_budget(self, account: str, name: str) -> bool:
        return await self._writer.delete_budget(account, name)

    async def insert_price_change(self, change: PriceChange) -> None:
        await self._writer.insert_price_change(change)

    async def insert_account(self, account: Account) -> None:
        await self._writer.insert_account(account)

    async def set_account_halted(self, name: str, halted_at: float | None) -> bool:
        return await self._writer.set_account_halted(name, halted_at)

    async def insert_runner(self, runner: Runner) -> None:
        await self._writer.insert_runner(runner)

    async def replace_runner_token(self, account: str, runner_id: str, digest: bytes) -> bool:
        return await self._writer.replace_runner_token(account, runner_id, digest)

    async def delete_runner(self, account: str, runner_id: str) -> bool:
        return await self._writer.delete_runner(account, runner_id)

    async def insert_ai_model(self, model: AiModel) -> None:
        await self._writer.insert_ai_model(model)

    async def replace_ai_model(self, model: AiModel) -> None:
        await self._writer.replace_ai_model(model)

    async def delete_ai_model(self, account: str, model_id: str) -> bool:
        return await self._writer.delete_ai_model(account, model_id)

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        return await self._writer.append_audit(drafts)

    async def insert_policy(self, policy: PolicyVersion) -> None:
        await self._writer.insert_policy(policy)

    async def mark_policy(self, policy: PolicyVersion) -> None:
        await self._writer.mark_policy(policy)

    async def delete_policy(self, account: str, version: int) -> bool:
        return await self._writer.delete_policy(account, version)


def _conflict(what: str, name: str) -> str:
    return (
        f"{what} {name} is in the configuration file and in the store; rename it in the file, or remove the stored one "
        f"with 'pointsman {what} delete {name}' while a gateway runs without it in its file"
    )


def _model_conflict(name: str) -> str:
    return (
        f"route {name} of the configuration file has the name of a registered model; rename it in the file, or change "
        "the model's alias (PUT /api/v1/ai-models/ID)"
    )

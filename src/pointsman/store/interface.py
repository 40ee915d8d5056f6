"""What the gateway asks of a store. `store.sql` is the implementation; a conformance suite says what it must do."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pointsman.core.account import Account
from pointsman.core.ai_model import AiModel
from pointsman.core.audit import AuditDraft, AuditEntry, AuditQuery
from pointsman.core.budget import Budget
from pointsman.core.chain import ChainHead
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


class Reader(Protocol):
    """A consistent view of everything, as of one moment."""

    async def generation(self) -> int:
        """Grows with every committed write, by whichever process."""

    async def provider(self, account: str, name: str) -> Provider | None:
        """One record, its credentials decrypted."""

    async def providers(self, account: str, limit: int, offset: int) -> Sequence[Provider]:
        """Records by name."""

    async def provider_names(self, account: str) -> Sequence[str]:
        """All of them, in the order of their code points, as every listing."""

    async def count_providers(self, account: str) -> int:
        """How many there are."""

    async def route(self, account: str, name: str) -> Route | None:
        """One route."""

    async def routes(self, account: str) -> Sequence[Route]:
        """All routes by name."""

    async def routes_to(self, account: str, provider_name: str) -> Sequence[Route]:
        """Routes that use a provider, as the only one, a candidate or a fallback; by name."""

    async def sandbox_token(self, account: str, name: str) -> SandboxToken | None:
        """One token, revoked ones included."""

    async def sandbox_tokens(self, account: str) -> Sequence[SandboxToken]:
        """All tokens by name."""

    async def sandbox_token_by_digest(self, digest: bytes) -> SandboxToken | None:
        """The token with this digest, of any account."""

    async def key(self, account: str, name: str) -> DataKey | None:
        """One key of the data listener, revoked ones included."""

    async def keys(self, account: str) -> Sequence[DataKey]:
        """All keys by name."""

    async def key_by_digest(self, digest: bytes) -> DataKey | None:
        """The key with this digest, of any account."""

    async def budget(self, account: str, name: str) -> Budget | None:
        """One budget."""

    async def budgets(self, account: str) -> Sequence[Budget]:
        """All budgets by name."""

    async def runner(self, account: str, runner_id: str) -> Runner | None:
        """One runner of this account."""

    async def runners(self, account: str) -> Sequence[Runner]:
        """All runners by name."""

    async def runner_by_digest(self, digest: bytes) -> Runner | None:
        """The runner whose token has this digest, of any account."""

    async def ai_model(self, account: str, model_id: str) -> AiModel | None:
        """One model of this account."""

    async def ai_model_by_alias(self, account: str, alias: str) -> AiModel | None:
        """The same, by what clients call it."""

    async def ai_models(self, account: str) -> Sequence[AiModel]:
        """All models by alias, those of deleted runners included."""

    async def ai_models_of(self, account: str, runner_id: str) -> Sequence[AiModel]:
        """Those of one runner, by alias."""

    async def policies(self, account: str) -> Sequence[PolicyVersion]:
        """All versions that are kept, the newest first."""

    async def policies_in_force(self) -> Sequence[PolicyVersion]:
        """Of every account: what is enforced and what is a dry run; the enforced one first."""

    async def usage(self, account: str, since: float, limit: int) -> Sequence[UsageRow]:
        """The newest rows from `since` on, the newest first."""

    async def usage_rows(self, account: str, period: Period, limit: int, after: RowPlace | None) -> UsagePage:
        """A page of rows, the newest first: the first, or the one behind another's `next`."""

    async def usage_sums(
        self, account: str | None, by: Sequence[UsageBy], period: Period, limit: int = MOST_SUMS
    ) -> Sequence[UsageSum]:
        """What requests came to: the dearest groups first, within the latest days. `account`: None for all accounts."""

    async def price_tables(self) -> Mapping[str, PriceTable]:
        """Those of accounts that ever had a price."""

    async def price_table(self, account: str) -> PriceTable:
        """One account's; the empty one with version 0 when it never had any."""

    async def price_changes(self, account: str, limit: int, before: int) -> Sequence[PriceChange]:
        """Those that made versions below `before`, the latest first."""

    async def receipts(self, account: str, after: int, limit: int, *, newest_first: bool) -> Sequence[Receipt]:
        """Those with a greater number than `after`, or newest first with a smaller one (0: all)."""

    async def receipt(self, account: str, request_id: str) -> Receipt | None:
        """That of one request."""

    async def receipt_head(self, account: str) -> ChainHead:
        """What is noted of the newest one; NO_HEAD for none."""

    async def account(self, name: str) -> Account | None:
        """One account."""

    async def accounts(self) -> Sequence[Account]:
        """All accounts by name."""

    async def audit(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Entries of the audit record, as they are stored: whoever wants to know whether they are true, checks."""

    async def audit_head(self) -> ChainHead:
        """What was noted as the newest entry."""


class Writer(Reader, Protocol):
    """One transaction. Writers come one after the other: what one has read cannot change before it commits."""

    async def insert_provider(self, provider: Provider) -> None:
        """Raises AlreadyExists for a name that the account has."""

    async def replace_provider(self, provider: Provider) -> None:
        """Raises NotFound."""

    async def delete_provider(self, account: str, name: str) -> bool:
        """Whether there was one."""

    async def put_route(self, route: Route) -> Route:
        """Create or replace it; what is returned has the next version of its name, which outlives deletion."""

    async def delete_route(self, account: str, name: str) -> bool:
        """Whether there was one."""

    async def insert_sandbox_token(self, token: SandboxToken) -> None:
        """Raises AlreadyExists for a name that the account has."""

    async def revoke_sandbox_token(self, account: str, name: str, now: float) -> bool:
        """Whether there was one that was not revoked."""

    async def insert_key(self, key: DataKey) -> None:
        """Raises AlreadyExists for a name that the account has."""

    async def revoke_key(self, account: str, name: str, now: float) -> bool:
        """Whether there was one that was not revoked."""

    async def insert_budget(self, budget: Budget) -> None:
        """Raises AlreadyExists for a name that the account has."""

    async def replace_budget(self, budget: Budget) -> bool:
        """Whether there was one with its account, name and id."""

    async def delete_budget(self, account: str, name: str) -> bool:
        """Whether there was one."""

    async def insert_price_change(self, change: PriceChange) -> None:
        """Its version is the next one of the account's table."""

    async def insert_account(self, account: Account) -> None:
        """Raises AlreadyExists."""

    async def set_account_halted(self, name: str, halted_at: float | None) -> bool:
        """Whether there is such an account; None resumes it."""

    async def insert_runner(self, runner: Runner) -> None:
        """Raises AlreadyExists for a name that the account has."""

    async def replace_runner_token(self, account: str, runner_id: str, digest: bytes) -> bool:
        """Whether there was such a runner."""

    async def delete_runner(self, account: str, runner_id: str) -> bool:
        """Whether there was one. Its models stay."""

    async def insert_ai_model(self, model: AiModel) -> None:
        """Raises AlreadyExists for an alias of another model of the account, or a binding of another model."""

    async def replace_ai_model(self, model: AiModel) -> None:
        """Changes what is not the identity of a model: its name, alias, address and identifier.

        Raises NotFound, or AlreadyExists as `insert_ai_model`.
        """

    async def delete_ai_model(self, account: str, model_id: str) -> bool:
        """Whether there was one."""

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        """Add entries behind the newest, without a gap; the newest is returned. They stand or fall with the rest."""

    async def insert_policy(self, policy: PolicyVersion) -> None:
        """A version that the account does not have."""

    async def mark_policy(self, policy: PolicyVersion) -> None:
        """Change its state, and when it was enforced."""

    async def delete_policy(self, account: str, version: int) -> bool:
        """Whether there was one."""


class Store(Protocol):
    """A database. Every method raises StoreUnavailable or StoreFull; then nothing was changed."""

    kind: str
    """`sqlite` or `postgresql`."""

    async def generation(self) -> int:
        """As a reader's; cheap: at most `freshness` seconds old for writes of other processes, exact for one's own."""

    def when_committed(self, tell: Callable[[], None]) -> None:
        """`tell` is called at once whenever this process has changed a record, and when it perhaps has."""

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A view of now."""

    def write(self) -> AbstractAsyncContextManager[Writer]:
        """A transaction: committed at the end, undone when the block raises."""

    async def append_usage(self, rows: Sequence[UsageRow], *, again: bool = False) -> None:
        """Add rows, all or none. The generation stays: nothing that is kept by it depends on them.

        `again`: an attempt before failed, and may have been made all the same; what is there is left out.
        """

    async def prune_usage(self, before: float) -> int:
        """Remove rows older than `before` (seconds since the epoch); how many there were. The generation stays."""

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        """Add entries of what changed no record, all or none. The generation stays."""

    async def append_receipts(self, drafts: Sequence[Receipt], *, again: bool) -> None:
        """Add receipts behind those of their accounts, all or none; the generation stays.

        `again`: an attempt before failed, and may have been made all the same; what is there is left out.
        """

    async def note_runner_seen(self, runner_id: str, at: float) -> None:
        """When a runner was connected last. The generation stays, and a runner that is gone is no error."""

    def derive(self, purpose: bytes) -> bytes:
        """32 secret bytes for one purpose, the same for every process with this database's key file."""

    async def close(self) -> None:
        """Let the database go."""

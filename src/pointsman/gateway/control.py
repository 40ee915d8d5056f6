"""The control plane as one object: what its protocols call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.core.control_errors import ControlError
from pointsman.core.route import Route
from pointsman.core.version import VERSION
from pointsman.gateway.accounts import Accounts
from pointsman.gateway.ai_models import AiModels
from pointsman.gateway.audit import Audit
from pointsman.gateway.auth import Authenticator
from pointsman.gateway.budgets import Budgets
from pointsman.gateway.bundles import Bundles
from pointsman.gateway.explain import Explain
from pointsman.gateway.keys import Keys
from pointsman.gateway.policies import Policies
from pointsman.gateway.prices import Prices
from pointsman.gateway.providers import Providers
from pointsman.gateway.receipts import Receipts
from pointsman.gateway.routes import Routes
from pointsman.gateway.runners import Runners
from pointsman.gateway.sandbox_tokens import SandboxTokens
from pointsman.gateway.usage_report import UsageReport
from pointsman.store.interface import Store


@dataclass(frozen=True, slots=True)
class Status:
    """What an operator asks first."""

    version: str
    store: str
    """`sqlite` or `postgresql`."""
    providers: int
    routes: Sequence[tuple[Route, str]]
    """Each with why it cannot be used at present, or nothing."""
    sandbox_tokens: int
    """Those that are valid."""
    started_at: float


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Every operation there is. Protocols authenticate, translate, and call these."""

    store: Store
    providers: Providers
    routes: Routes
    sandbox_tokens: SandboxTokens
    keys: Keys
    runners: Runners
    ai_models: AiModels
    accounts: Accounts
    audit: Audit
    budgets: Budgets
    policies: Policies
    prices: Prices
    usage: UsageReport
    receipts: Receipts
    bundles: Bundles
    explain: Explain
    authenticator: Authenticator
    clock: Callable[[], float]
    started_at: float

    async def status(self, account: str) -> Status:
        """A look at everything of one account."""
        listed = await self.routes.list(account)
        routes = list(zip(listed, await self.routes.problems(account, listed), strict=True))
        async with self.store.read() as reader:
            providers = await reader.count_providers(account)
        now = self.clock()
        tokens = sum(token.is_valid(now) for token in await self.sandbox_tokens.list(account))
        return Status(VERSION, self.store.kind, providers, routes, tokens, self.started_at)

    async def healthy(self) -> bool:
        """Whether the store answers."""
        try:
            async with self.store.read() as reader:
                await reader.generation()
        except ControlError:
            return False
        return True

"""What each path does: take a request apart, call the operation, form the answer."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Response
from starlette.status import HTTP_503_SERVICE_UNAVAILABLE

from pointsman.core.control_errors import NotFound
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.providers import DEFAULT_PAGE
from pointsman.gateway.rest import answers, requests
from pointsman.gateway.rest.admission import account_of, name_in_path

BASE = "/api/v1"
AccountName = Annotated[str, Depends(account_of)]
PathName = Annotated[str, Depends(name_in_path)]


class ProviderEndpoints:
    """`/providers`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(
        self, account: AccountName, limit: requests.Limit = DEFAULT_PAGE, offset: requests.Offset = 0
    ) -> answers.ProviderPage:
        """Providers by name, one page of them."""
        page = await self._control.providers.page(account, limit, offset)
        return answers.ProviderPage.of(page)

    async def create(
        self, account: AccountName, body: requests.NewProvider, response: Response
    ) -> answers.ProviderAnswer:
        """Create a provider."""
        provider = await self._control.providers.create(account, body.draft())
        response.headers["location"] = f"{BASE}/providers/{quote(provider.name)}"
        return answers.ProviderAnswer.of(provider)

    async def get(self, account: AccountName, name: PathName) -> answers.ProviderAnswer:
        """One provider."""
        return answers.ProviderAnswer.of(await self._control.providers.get(account, name))

    async def update(
        self, account: AccountName, name: PathName, body: requests.ProviderChanges
    ) -> answers.ProviderAnswer:
        """Rotate a key or change configuration: entries are merged, an empty value deletes its key."""
        return answers.ProviderAnswer.of(await self._control.providers.update(account, body.draft(name)))

    async def delete(
        self, account: AccountName, name: PathName, force: requests.Force = False
    ) -> answers.ProviderDeletion:
        """Delete a provider; refused while routes use it, unless forced."""
        deletion = await self._control.providers.delete(account, name, force=force)
        if not deletion.deleted:
            raise NotFound(f"provider {name[:64]!r} not found; see {BASE}/providers")
        return answers.ProviderDeletion.of(deletion)


class RouteEndpoints:
    """`/routes`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self, account: AccountName) -> answers.RouteList:
        """All routes by name, each with why it cannot be used, if so."""
        routes = self._control.routes
        listed = await routes.list(account)
        found = list(zip(listed, await routes.problems(account, listed), strict=True))
        return answers.RouteList.of(found)

    async def get(self, account: AccountName, name: PathName) -> answers.RouteAnswer:
        """One route. `inference.local` and `sandbox-system` are those that a sandbox knows."""
        route = await self._control.routes.get(account, name)
        return answers.RouteAnswer.of(route, await self._control.routes.problem(account, route))

    async def set(self, account: AccountName, name: PathName, body: requests.RouteSetting) -> answers.RouteChanged:
        """Point a route at a provider and a model, at a chain of them, or at a named route; it is made if need be."""
        return answers.RouteChanged.of(await self._control.routes.set(account, body.route_target(name), body.verify))

    async def update(self, account: AccountName, name: PathName, body: requests.RouteChanges) -> answers.RouteChanged:
        """Change what is given of a route, in one step."""
        return answers.RouteChanged.of(await self._control.routes.update(account, name, body.edit(), body.verify))

    async def delete(self, account: AccountName, name: PathName) -> answers.RouteDeletion:
        """Delete a route."""
        if not await self._control.routes.delete(account, name):
            raise NotFound(f"route {name[:64]!r} is not set; see {BASE}/routes")
        return answers.RouteDeletion(deleted=True)


class SandboxTokenEndpoints:
    """`/sandbox-tokens`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self, account: AccountName) -> answers.SandboxTokenList:
        """All tokens by name; the tokens themselves are not kept."""
        found = await self._control.sandbox_tokens.list(account)
        return answers.SandboxTokenList(sandbox_tokens=[answers.SandboxTokenAnswer.of(each) for each in found])

    async def create(
        self, account: AccountName, body: requests.NewSandboxToken, response: Response
    ) -> answers.SandboxTokenMade:
        """Make a token for a sandbox. It is shown in this answer, and never again."""
        token, secret = await self._control.sandbox_tokens.create(account, body.name, body.route, body.lifetime_seconds)
        response.headers["location"] = f"{BASE}/sandbox-tokens/{quote(token.name)}"
        return answers.SandboxTokenMade.shown(token, secret)

    async def revoke(self, account: AccountName, name: PathName) -> answers.SandboxTokenRevocation:
        """Revoke a token; it entitles to nothing from then on."""
        if not await self._control.sandbox_tokens.revoke(account, name):
            raise NotFound(f"there is no sandbox token {name[:64]!r} that is not revoked; see {BASE}/sandbox-tokens")
        return answers.SandboxTokenRevocation(revoked=True)


class KeyEndpoints:
    """`/keys`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self, account: AccountName) -> answers.KeyList:
        """All keys of the data listener by name; the keys themselves are not kept."""
        return answers.KeyList(keys=[answers.KeyAnswer.of(each) for each in await self._control.keys.list(account)])

    async def create(self, account: AccountName, body: requests.NewKey, response: Response) -> answers.KeyMade:
        """Make a key for the data listener. It is shown in this answer, and never again."""
        key, secret = await self._control.keys.create(account, body.draft())
        response.headers["location"] = f"{BASE}/keys/{quote(key.name)}"
        return answers.KeyMade.shown(key, secret)

    async def revoke(self, account: AccountName, name: PathName) -> answers.KeyRevocation:
        """Revoke a key; it opens nothing from then on."""
        if not await self._control.keys.revoke(account, name):
            raise NotFound(f"there is no key {name[:64]!r} that is not revoked; see {BASE}/keys")
        return answers.KeyRevocation(revoked=True)


class AccountEndpoints:
    """`/accounts`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self) -> answers.AccountList:
        """All accounts, by name."""
        found = await self._control.accounts.list()
        return answers.AccountList(accounts=[answers.AccountAnswer.of(each) for each in found])

    async def create(self, body: requests.NewAccount) -> answers.AccountAnswer:
        """Create an account. Requests name it in the header x-pointsman-account."""
        return answers.AccountAnswer.of(await self._control.accounts.create(body.name))

    async def halt(self, name: PathName) -> answers.AccountAnswer:
        """Halt an account: nothing is served for it until it is resumed, and what is being served ends."""
        return answers.AccountAnswer.of(await self._control.accounts.halt(name))

    async def resume(self, name: PathName) -> answers.AccountAnswer:
        """Resume an account that was halted."""
        return answers.AccountAnswer.of(await self._control.accounts.resume(name))


class GatewayEndpoints:
    """The gateway itself."""

    def __init__(self, control: ControlPlane, version: str) -> None:
        self._control = control
        self._version = version

    async def health(self, response: Response) -> answers.Health:
        """Whether the gateway can do its work; for load balancers, without a token."""
        healthy = await self._control.healthy()
        if not healthy:
            response.status_code = HTTP_503_SERVICE_UNAVAILABLE
        return answers.Health(status="ok" if healthy else "degraded", version=self._version)

    async def status(self, account: AccountName) -> answers.StatusAnswer:
        """What an operator asks first."""
        return answers.StatusAnswer.of(await self._control.status(account))

"""What each client command prints, word for word."""

import json
from collections.abc import Iterator

import grpc
import pytest

from pointsman.rpc.gen import control_pb2, datamodel_pb2, inference_pb2, openshell_pb2
from tests.support.canary import KEY
from tests.support.client_commands import run_client
from tests.support.scripted_control import Answer, Refusal, ScriptedControl, scripted_control

WORK = datamodel_pb2.Provider(
    id="p-1",
    name="work",
    type="openai",
    credentials={"OPENAI_API_KEY": KEY},  # a gateway that forgot to redact
    config={"OPENAI_BASE_URL": "https://models.example/v1"},
)
CLAUDE = datamodel_pb2.Provider(id="p-2", name="claude", type="anthropic", credentials={"A": KEY, "B": KEY})
MAIN = control_pb2.Route(name="inference.local", kind="direct", provider_name="work", model="gpt", version=3)
BROKEN = control_pb2.Route(
    name="fast",
    kind="direct",
    provider_name="gone",
    model="tiny\x1b[2J",
    timeout_secs=90,
    version=4,
    problem="gone is not there",
)
CHAIN = control_pb2.Route(
    name="all-day",
    kind="chain",
    candidates=[
        control_pb2.RouteCandidate(provider_name="groq"),
        control_pb2.RouteCandidate(provider_name="work", model="gpt"),
    ],
    strategy="least_used",
    fallback="local",
    request_timeout_secs=90,
    version=2,
)
ENDPOINT = inference_pb2.ValidatedEndpoint(
    url="https://models.example/v1/chat/completions", protocol="openai_chat_completions"
)
TOKEN = control_pb2.SandboxToken(name="ci", account="default", route="fast", created_at_ms=1_700_000_000_000)
EXPIRED = control_pb2.SandboxToken(
    name="old", account="default", created_at_ms=1_600_000_000_000, expires_at_ms=1_600_000_060_000
)
REVOKED = control_pb2.SandboxToken(
    name="out", account="default", created_at_ms=1_600_000_000_000, revoked_at_ms=1_600_000_060_000
)
LAPTOP = control_pb2.Key(name="laptop", account="default", permissions=["inference"], created_at_ms=1_700_000_000_000)
TRIAL = control_pb2.Key(
    name="trial",
    account="default",
    permissions=["inference", "models:view"],
    routes=["fast", "cheap"],
    created_at_ms=1_600_000_000_000,
    expires_at_ms=1_600_000_060_000,
)
STATUS = control_pb2.GetStatusResponse(
    version="0.1.0",
    store="sqlite",
    providers=2,
    routes=[MAIN, BROKEN],
    sandbox_tokens=1,
    started_at_ms=1_700_000_000_000,
)


def changed(request: control_pb2.SetRouteRequest) -> control_pb2.RouteChange:
    kind = "chain" if request.candidates else "alias" if getattr(request, "target", "") else "direct"
    route = control_pb2.Route(
        name=request.name,
        kind=kind,
        provider_name=request.provider_name or "work" if kind == "direct" else "",
        model=request.model or "gpt" if kind == "direct" else "",
        candidates=request.candidates,
        strategy=request.strategy or "in_order" if kind == "chain" else "",
        fallback=request.fallback,
        target=getattr(request, "target", ""),
        timeout_secs=request.timeout_secs,
        version=1,
    )
    verified = not request.no_verify
    return control_pb2.RouteChange(route=route, verified=verified, validated_endpoints=[ENDPOINT] if verified else [])


def route_named(request: control_pb2.GetRouteRequest) -> control_pb2.Route:
    for each in (MAIN, BROKEN, CHAIN):
        if each.name == request.name:
            return each
    raise Refusal(grpc.StatusCode.NOT_FOUND, f"there is no route {request.name}")


@pytest.fixture(scope="module")
def gateway() -> Iterator[ScriptedControl]:
    answers: dict[str, Answer] = {
        "Health": lambda _: openshell_pb2.HealthResponse(status=openshell_pb2.SERVICE_STATUS_HEALTHY, version="0.1.0"),
        "GetStatus": lambda _: STATUS,
        "CreateProvider": lambda _: openshell_pb2.ProviderResponse(provider=WORK),
        "GetProvider": lambda _: openshell_pb2.ProviderResponse(provider=WORK),
        "UpdateProvider": lambda _: openshell_pb2.ProviderResponse(provider=WORK),
        "ListProviders": lambda request: openshell_pb2.ListProvidersResponse(
            providers=[CLAUDE, WORK] if request.offset == 0 else []
        ),
        "DeleteProvider": lambda request: control_pb2.DeleteProviderResponse(
            deleted=request.name == "work", broken_routes=["fast"] if request.force else []
        ),
        "SetRoute": changed,
        "UpdateRoute": changed,
        "GetRoute": route_named,
        "ListRoutes": lambda _: control_pb2.ListRoutesResponse(routes=[BROKEN, CHAIN, MAIN]),
        "DeleteRoute": lambda _: control_pb2.DeleteRouteResponse(deleted=True),
        "ListSandboxTokens": lambda _: control_pb2.ListSandboxTokensResponse(sandbox_tokens=[TOKEN, EXPIRED, REVOKED]),
        "RevokeSandboxToken": lambda _: control_pb2.RevokeSandboxTokenResponse(revoked=True),
        "ListKeys": lambda _: control_pb2.ListKeysResponse(keys=[LAPTOP, TRIAL]),
        "RevokeKey": lambda _: control_pb2.RevokeKeyResponse(revoked=True),
        "CreateAccount": lambda _: control_pb2.Account(name="team", created_at_ms=1_700_000_000_000),
        "ListAccounts": lambda _: control_pb2.ListAccountsResponse(accounts=[control_pb2.Account(name="default")]),
    }
    with scripted_control(answers) as scripted:
        yield scripted


TEXTS = {
    "status": """\
Gateway:

  Address: {gateway}
  Health: healthy
  Version: 0.1.0
  Store: sqlite
  Started: 2023-11-14T22:13:20Z
  Account: default
  Providers: 2
  Sandbox tokens: 1

Routes:

  NAME             KIND    PROVIDER  MODEL        TIMEOUT        VERSION  SOURCE  PROBLEM
  inference.local  direct  work      gpt          60s (default)  3        store   -
  fast             direct  gone      tiny\\x1b[2J  90s            4        store   gone is not there
""",
    "provider create --name work --type openai --credential A=b": "Created provider work\n",
    "provider get work": """\
Provider:

  Id: p-1
  Name: work
  Type: openai
  Credential keys: OPENAI_API_KEY
  Config: OPENAI_BASE_URL=https://models.example/v1
""",
    "provider list": """\
NAME    TYPE       CREDENTIAL_KEYS  CONFIG_KEYS  SOURCE
claude  anthropic  2                0            store
work    openai     1                1            store
""",
    "provider list --names": "claude\nwork\n",
    "provider list --offset 2": "No more providers\n",
    "provider list --offset 2 --names": "",
    "provider update work --credential A=b": "Updated provider work\n",
    "provider delete work": "Deleted provider work\n",
    "inference set --provider work --model gpt": """\
Gateway inference configured:

  Route: inference.local
  Provider: work
  Model: gpt
  Version: 1
  Timeout: 60s (default)
  Validated Endpoints:
    - https://models.example/v1/chat/completions (openai_chat_completions)
""",
    "inference set --system --provider work --model gpt --timeout 90 --no-verify": """\
System inference configured:

  Route: sandbox-system
  Provider: work
  Model: gpt
  Version: 1
  Timeout: 90s
""",
    "inference update --model big --no-verify": """\
Gateway inference updated:

  Route: inference.local
  Provider: work
  Model: big
  Version: 1
  Timeout: 60s (default)
""",
    "inference get": """\
Gateway inference:

  Provider: work
  Model: gpt
  Version: 3
  Timeout: 60s (default)

System inference:

  Not configured
""",
    "inference delete": "Gateway inference deleted\n",
    "inference delete --system": "System inference deleted\n",
    "route create cheap --provider work --model gpt --no-verify": """\
Route cheap created:

  Route: cheap
  Provider: work
  Model: gpt
  Version: 1
  Timeout: 60s (default)
""",
    "route get fast": """\
Route fast:

  Provider: gone
  Model: tiny\\x1b[2J
  Version: 4
  Timeout: 90s
  Problem: gone is not there
""",
    "route create all-day --candidate groq --candidate work=gpt --no-verify": """\
Route all-day created:

  Route: all-day
  Candidates: groq, work=gpt
  Strategy: in_order
  Fallback: none
  Version: 1
  Request timeout: 300s (default)
""",
    "inference set --route all-day --no-verify": """\
Gateway inference configured:

  Route: inference.local
  Leads to: route all-day
  Version: 1
""",
    "route get all-day": """\
Route all-day:

  Candidates: groq, work=gpt
  Strategy: least_used
  Fallback: local
  Version: 2
  Request timeout: 90s
""",
    "route update all-day --candidate work --fallback local --no-verify": """\
Route all-day updated:

  Route: all-day
  Candidates: work
  Strategy: in_order
  Fallback: local
  Version: 1
  Request timeout: 300s (default)
""",
    "route list": """\
NAME             KIND    PROVIDER                  MODEL        TIMEOUT        VERSION  SOURCE  PROBLEM
fast             direct  gone                      tiny\\x1b[2J  90s            4        store   gone is not there
all-day          chain   groq,work=gpt,then local  -            90s            2        store   -
inference.local  direct  work                      gpt          60s (default)  3        store   -
""",
    "route update fast --timeout 0 --no-verify": """\
Route fast updated:

  Route: fast
  Provider: work
  Model: gpt
  Version: 1
  Timeout: 60s (default)
""",
    "route delete fast": "Deleted route fast\n",
    "sandbox token list": """\
NAME  STATE    ROUTE            CREATED               EXPIRES
ci    valid    fast             2023-11-14T22:13:20Z  never
old   expired  inference.local  2020-09-13T12:26:40Z  2020-09-13T12:27:40Z
out   revoked  inference.local  2020-09-13T12:26:40Z  never
""",
    "sandbox token revoke ci": "Revoked the token of ci\n",
    "key list": """\
NAME    STATE    USER  PERMISSIONS            ROUTES      FROM      CREATED               EXPIRES
laptop  valid    -     inference              all         anywhere  2023-11-14T22:13:20Z  never
trial   expired  -     inference,models:view  fast,cheap  anywhere  2020-09-13T12:26:40Z  2020-09-13T12:27:40Z
""",
    "key revoke laptop": "Revoked the key laptop\n",
    "account create team": "Created account team\nTo work on its records: --account team\n",
    "account list": "NAME     STATE   CREATED\ndefault  active  -\n",
}


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("command", TEXTS, ids=lambda command: command.replace(" ", "_"))
def test_a_command_prints_exactly_this(gateway: ScriptedControl, command: str) -> None:
    result = run_client(gateway.url, *command.split())
    assert KEY not in result.output
    assert (result.stdout, result.stderr, result.exit_code) == (TEXTS[command].replace("{gateway}", gateway.url), "", 0)


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("command", TEXTS, ids=lambda command: command.replace(" ", "_"))
def test_every_command_says_the_same_as_json_without_a_credential(gateway: ScriptedControl, command: str) -> None:
    result = run_client(gateway.url, *command.split(), "-o", "json")
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)
    assert KEY not in result.output


MAIN_ROUTE = {
    "name": "inference.local",
    "kind": "direct",
    "provider_name": "work",
    "model": "gpt",
    "timeout_seconds": 0,
    "candidates": [],
    "strategy": "",
    "fallback": "",
    "request_timeout_seconds": 0,
    "target": "",
    "via_gateway": False,
    "context": "",
    "from_file": False,
    "version": 3,
    "problem": None,
}


def test_the_fields_of_json_are_these(gateway: ScriptedControl) -> None:
    def document(command: str) -> object:
        return json.loads(run_client(gateway.url, *command.split(), "-o", "json").stdout)

    main = MAIN_ROUTE
    assert document("inference get") == {"inference.local": main, "sandbox-system": None}
    assert document("provider get work") == {
        "id": "p-1",
        "name": "work",
        "type": "openai",
        "credentials": {"OPENAI_API_KEY": "REDACTED"},
        "config": {"OPENAI_BASE_URL": "https://models.example/v1"},
        "from_file": False,
    }
    assert document("inference set --provider work --model gpt") == {
        **main,
        "version": 1,
        "verified": True,
        "validated_endpoints": [
            {"url": "https://models.example/v1/chat/completions", "protocol": "openai_chat_completions"}
        ],
    }
    tokens = document("sandbox token list")
    assert isinstance(tokens, list)
    assert tokens[1] == {
        "name": "old",
        "account": "default",
        "state": "expired",
        "route": "",
        "created_at": "2020-09-13T12:26:40Z",
        "expires_at": "2020-09-13T12:27:40Z",
        "revoked_at": None,
    }
    status = document("status")
    assert isinstance(status, dict)
    assert status.pop("routes")[0] == main
    assert status == {
        "gateway": gateway.url,
        "health": "healthy",
        "version": "0.1.0",
        "store": "sqlite",
        "started_at": "2023-11-14T22:13:20Z",
        "account": "default",
        "providers": 2,
        "sandbox_tokens": 1,
    }

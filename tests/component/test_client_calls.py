"""What a client command sends, how long it waits, and what it says when the call does not succeed."""

import os
import socket
from pathlib import Path

import grpc
import pytest

from pointsman.cli.call import default_token_path
from pointsman.core.gateway_address import GatewayAddress
from pointsman.rpc.gen import control_pb2, openshell_pb2
from tests.support.client_commands import run_client
from tests.support.scripted_control import Answer, Refusal, scripted_control

TOKEN = "adm-0123456789"
ECHO: dict[str, Answer] = {"ListRoutes": lambda _: control_pb2.ListRoutesResponse()}


def refusing(code: grpc.StatusCode, text: str = "") -> dict[str, Answer]:
    def answer(_: object) -> control_pb2.ListRoutesResponse:
        raise Refusal(code, text)

    return {"ListRoutes": answer}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "admin.token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_every_call_carries_the_token_and_the_account(token_file: Path) -> None:
    with scripted_control(ECHO) as gateway:
        run_client(gateway.url, "route", "list", "--token-file", str(token_file))
        run_client(gateway.url, "route", "list", "--token-file", str(token_file), "--account", "team")
    assert [each["authorization"] for each in gateway.metadata] == [f"Bearer {TOKEN}"] * 2
    assert [each["x-pointsman-account"] for each in gateway.metadata] == ["default", "team"]


def test_the_token_of_this_machines_gateway_is_found_where_it_keeps_its_data(token_file: Path, tmp_path: Path) -> None:
    (tmp_path / "pointsman").mkdir()
    os.link(token_file, tmp_path / "pointsman" / "admin.token")
    with scripted_control(ECHO) as gateway:
        run_client(gateway.url, "route", "list", environ={"XDG_DATA_HOME": str(tmp_path)})
        run_client(gateway.url, "route", "list", environ={"POINTSMAN_DATA_DIR": str(tmp_path)})
        run_client(gateway.url, "route", "list", environ={"POINTSMAN_TOKEN_FILE": str(token_file)})
        result = run_client(gateway.url, "route", "list")
    assert [each.get("authorization") for each in gateway.metadata] == [f"Bearer {TOKEN}"] * 3 + [None]
    assert result.exit_code == 0  # a gateway on loopback may ask for none


@pytest.mark.parametrize(
    ("host", "is_here"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("gateway.example", False)]
)
def test_this_machines_token_is_not_shown_to_another_machines_gateway(host: str, is_here: bool) -> None:
    environ = {"XDG_DATA_HOME": "/data"}
    path = default_token_path(GatewayAddress(host, 8782, tls=True), environ)
    assert path == ("/data/pointsman/admin.token" if is_here else "")


def test_a_token_file_that_was_named_must_be_usable(token_file: Path, tmp_path: Path) -> None:
    absent = run_client("http://127.0.0.1:1", "status", "--token-file", str(tmp_path / "absent"))
    assert absent.exit_code == 1
    assert "absent: no such file or directory; check the path" in absent.stderr
    token_file.chmod(0o644)
    readable = run_client("http://127.0.0.1:1", "status", "--token-file", str(token_file))
    assert (readable.exit_code, "others may use it; chmod 600" in readable.stderr) == (1, True)
    token_file.chmod(0o600)
    token_file.write_text(f"{TOKEN} {TOKEN}")
    crooked = run_client("http://127.0.0.1:1", "status", "--token-file", str(token_file))
    assert (crooked.exit_code, "is not one line" in crooked.stderr, TOKEN in crooked.output) == (1, True, False)


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "it was revoked", "does not accept the token in"),
        (grpc.StatusCode.PERMISSION_DENIED, "it is a sandbox's", "does not let the token in"),
        (grpc.StatusCode.UNAVAILABLE, "the database is locked; try again", "Error: the database is locked; try again"),
        (grpc.StatusCode.FAILED_PRECONDITION, "the probe failed; use --no-verify", "Error: the probe failed"),
        (grpc.StatusCode.INTERNAL, "", "failed; its log says why"),
    ],
)
def test_a_refusal_is_one_line_and_exit_status_1(token_file: Path, code: grpc.StatusCode, text: str, said: str) -> None:
    with scripted_control(refusing(code, text)) as gateway:
        result = run_client(gateway.url, "route", "list", "--token-file", str(token_file))
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert TOKEN not in result.output


def test_a_gateway_of_another_kind_is_recognised() -> None:
    with scripted_control({}) as gateway:
        assert "does not know this call" in run_client(gateway.url, "route", "list").stderr
        assert run_client(gateway.url, "status").exit_code == 1


def test_a_gateway_that_is_not_there_is_told_with_what_starts_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for command in ("status", "provider list", "inference get", "route list", "sandbox token list", "account list"):
        result = run_client(f"http://127.0.0.1:{port}", *command.split())
        assert (result.exit_code, result.stdout) == (1, "")
        assert (
            f"cannot reach the gateway at http://127.0.0.1:{port}; start it with 'pointsman gateway'" in result.stderr
        )


def test_an_unhealthy_gateway_ends_status_with_1_and_a_degraded_one_does_not() -> None:
    answers: dict[str, Answer] = {"GetStatus": lambda _: control_pb2.GetStatusResponse(version="0.1.0", store="sqlite")}
    for health, said, exit_status in ((1, "healthy", 0), (2, "degraded", 0), (3, "unhealthy", 1), (0, "unknown", 1)):
        answers["Health"] = lambda _, health=health: openshell_pb2.HealthResponse(status=health)  # type: ignore[misc]
        with scripted_control(answers) as gateway:
            result = run_client(gateway.url, "status")
        assert (f"Health: {said}" in result.stdout, result.exit_code) == (True, exit_status)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("inference update", "give at least one of --provider, --model and --timeout"),
        ("inference update --no-verify", "give at least one of --provider, --model and --timeout"),
        ("route update fast", "give at least one of --provider, --model and --timeout"),
        ("route create inference.local --provider a --model b", "use 'pointsman inference set'"),
        ("route update sandbox-system --model b", "use 'pointsman inference update --system'"),
        ("route delete sandbox-system", "use 'pointsman inference delete --system'"),
        ("inference set --model b", "Give --provider NAME and --model MODEL, or --route NAME"),
        ("inference set --provider a --model b --timeout -1", "-1 is not in the range 0<=x<=86400"),
        ("inference set --provider a --model b --timeout 1.5", "'1.5' is not a whole number of seconds"),
        ("inference set --provider a --model b --timeout 86401", "86401 is not in the range 0<=x<=86400"),
        ("sandbox token create ci --expires yesterday", "is no time span and no date"),
        ("sandbox token create ci --route sandbox-system", "is not for the command inside"),
    ],
)
def test_what_is_wrong_with_a_route_or_a_token_is_a_usage_error(command: str, said: str) -> None:
    with scripted_control(ECHO) as gateway:
        result = run_client(gateway.url, *command.split())
    assert (result.exit_code, gateway.requests) == (2, [])
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["inference set", "inference update", "route create x", "route update x"])
@pytest.mark.parametrize("flag", [(), ("--no-verify",)])
def test_no_verify_is_accepted_and_sent(command: str, flag: tuple[str, ...]) -> None:
    def change(request: control_pb2.SetRouteRequest) -> control_pb2.RouteChange:
        return control_pb2.RouteChange(route=control_pb2.Route(name=request.name))

    def absent(_: object) -> control_pb2.Route:
        raise Refusal(grpc.StatusCode.NOT_FOUND)

    with scripted_control({"SetRoute": change, "UpdateRoute": change, "GetRoute": absent}) as gateway:
        result = run_client(gateway.url, *command.split(), "--provider", "a", "--model", "b", "--timeout", "7", *flag)
    assert result.exit_code == 0, result.output
    request = gateway.requests[-1][1]
    assert isinstance(request, control_pb2.SetRouteRequest | control_pb2.UpdateRouteRequest)
    assert (request.provider_name, request.model, request.timeout_secs) == ("a", "b", 7)
    assert request.no_verify is bool(flag)


def test_an_update_sends_only_what_was_given() -> None:
    def change(request: control_pb2.UpdateRouteRequest) -> control_pb2.RouteChange:
        return control_pb2.RouteChange(route=control_pb2.Route(name=request.name))

    with scripted_control({"UpdateRoute": change}) as gateway:
        run_client(gateway.url, "inference", "update", "--system", "--timeout", "0")
    assert gateway.requests == [("UpdateRoute", control_pb2.UpdateRouteRequest(name="sandbox-system", timeout_secs=0))]
    sent_request = gateway.requests[0][1]
    assert sent_request.HasField("timeout_secs")
    assert not sent_request.HasField("model")


def test_a_route_is_created_only_where_there_is_none() -> None:
    text = "route fast exists; 'pointsman route update fast' changes it"
    refusal = refusing(grpc.StatusCode.ALREADY_EXISTS, text)["ListRoutes"]
    with scripted_control({"SetRoute": refusal}) as gateway:
        result = run_client(gateway.url, "route", "create", "fast", "--provider", "a", "--model", "b")
        ((_, request),) = gateway.requests
    assert result.exit_code == 1
    assert isinstance(request, control_pb2.SetRouteRequest)
    assert request.create_only
    assert text in result.stderr


def test_system_inference_alone_is_an_error_when_it_is_not_set() -> None:
    with scripted_control(ECHO) as gateway:
        result = run_client(gateway.url, "inference", "get", "--system")
        both = run_client(gateway.url, "inference", "get")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "system inference is not configured; 'pointsman inference set --system --provider NAME" in result.stderr
    assert (both.exit_code, both.stdout.count("Not configured")) == (0, 2)

"""What `pointsman provider` makes of its flags, and that no key is in what it prints."""

from collections.abc import Mapping

import grpc
import pytest

from pointsman.rpc.gen import control_pb2, datamodel_pb2, openshell_pb2
from tests.support.canary import KEY
from tests.support.client_commands import run_client
from tests.support.scripted_control import Answer, Refusal, scripted_control

ECHO: dict[str, Answer] = {
    "CreateProvider": lambda request: openshell_pb2.ProviderResponse(provider=request.provider),
    "UpdateProvider": lambda request: openshell_pb2.ProviderResponse(provider=request.provider),
    "GetProvider": lambda request: openshell_pb2.ProviderResponse(
        provider=datamodel_pb2.Provider(name=request.name, type="anthropic")
    ),
}


def sent(
    *arguments: str, environ: Mapping[str, str | None] | None = None, stdin: str | None = None
) -> datamodel_pb2.Provider:
    with scripted_control(ECHO) as gateway:
        result = run_client(gateway.url, "provider", *arguments, environ=environ, stdin=stdin)
    assert result.exit_code == 0, result.output
    assert KEY not in result.output
    request = gateway.requests[-1][1]
    assert isinstance(request, openshell_pb2.CreateProviderRequest | openshell_pb2.UpdateProviderRequest)
    return request.provider


CREATE = ("create", "--name", "work", "--type", "openai")


@pytest.mark.parametrize(
    ("flags", "stdin"),
    [
        (("--credential", f"OPENAI_API_KEY={KEY}"), None),
        (("--credential", "OPENAI_API_KEY"), None),
        (("--credential", "OPENAI_API_KEY=-"), f"{KEY}\n"),
        (("--from-existing",), None),
    ],
    ids=["argument", "variable", "standard input", "discovery"],
)
def test_a_key_reaches_the_gateway_from_each_of_its_sources(flags: tuple[str, ...], stdin: str | None) -> None:
    provider = sent(*CREATE, *flags, environ={"OPENAI_API_KEY": KEY}, stdin=stdin)
    assert (provider.name, provider.type) == ("work", "openai")
    assert dict(provider.credentials) == {"OPENAI_API_KEY": KEY}


def test_a_model_file_is_a_provider_without_a_key() -> None:
    arguments = ("--name", "local", "--type", "local_gguf", "--config", "MODEL_PATH=/models/small.gguf")
    provider = sent("create", *arguments)
    assert (dict(provider.credentials), dict(provider.config)) == ({}, {"MODEL_PATH": "/models/small.gguf"})


def test_config_travels_beside_the_key_and_empty_values_of_an_update_delete() -> None:
    provider = sent(*CREATE, "--credential", f"A={KEY}", "--config", "OPENAI_BASE_URL=mock://x", "--config", "B=c")
    assert dict(provider.config) == {"OPENAI_BASE_URL": "mock://x", "B": "c"}
    provider = sent("update", "work", "--credential", "A=", "--credential", f"B={KEY}", "--config", "C=")
    assert (dict(provider.credentials), dict(provider.config)) == ({"A": "", "B": KEY}, {"C": ""})


def test_an_update_discovers_by_the_type_that_the_record_has() -> None:
    environ = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": "another"}
    assert dict(sent("update", "work", "--from-existing", environ=environ).credentials) == {"ANTHROPIC_API_KEY": KEY}


def test_a_base_url_that_stays_behind_is_warned_of() -> None:
    with scripted_control(ECHO) as gateway:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://elsewhere.example/v1"}
        result = run_client(gateway.url, "provider", *CREATE, "--from-existing", environ=environ)
    assert "warning: OPENAI_BASE_URL is set here and was not taken; if the key is for that place, give --config" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "exit_status", "said"),
    [
        ((*CREATE,), 2, "no credential; give --from-existing or --credential KEY"),
        ((*CREATE, "--from-existing", "--credential", "A=b"), 2, "exclude each other"),
        (("update", "work", "--from-existing", "--credential", "A=b"), 2, "exclude each other"),
        (("update", "work"), 2, "nothing to change"),
        ((*CREATE, "--credential", "NOT_SET_KEY"), 1, "NOT_SET_KEY: the variable is not set here"),
        ((*CREATE, "--credential", "EMPTY_KEY"), 1, "EMPTY_KEY: the variable is empty here"),
        ((*CREATE, "--credential", "A=", KEY), 2, "an argument belongs to no option"),
        ((*CREATE, "--credential", KEY), 2, "names a variable, and this is none"),
        ((*CREATE, "--from-existing"), 1, "found no OPENAI_API_KEY here"),
        (("list", "--account", "no/slash"), 2, "--account: 'no/slash' cannot be the name of an account"),
        (("get", "\udcff"), 2, "an argument is not UTF-8"),
        (("create", "--name", "x"), 2, "Missing option '--type'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_command_is_said_before_anything_is_sent(
    arguments: tuple[str, ...], exit_status: int, said: str
) -> None:
    with scripted_control(ECHO) as gateway:
        environ = {"EMPTY_KEY": "", "NOT_SET_KEY": None, "OPENAI_API_KEY": None}
        result = run_client(gateway.url, "provider", *arguments, environ=environ)
    assert (result.exit_code, gateway.requests) == (exit_status, [])
    assert said in result.stderr
    assert KEY not in result.output


def deletion(request: control_pb2.DeleteProviderRequest) -> control_pb2.DeleteProviderResponse:
    if request.name == "used" and not request.force:
        raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "route fast uses provider used; use --force")
    broken = ["fast"] if request.name == "used" else []
    return control_pb2.DeleteProviderResponse(deleted=request.name != "absent", broken_routes=broken)


def test_deleting_several_providers_tries_all_and_tells_of_each() -> None:
    with scripted_control({"DeleteProvider": deletion}) as gateway:
        result = run_client(gateway.url, "provider", "delete", "used", "absent", "spare", "spare")
    assert (result.exit_code, result.stdout) == (1, "Deleted provider spare\n")
    assert "pointsman: route fast uses provider used; use --force\n" in result.stderr
    assert "pointsman: provider 'absent' not found; 'pointsman provider list' names them\n" in result.stderr


def test_a_forced_deletion_names_the_routes_that_lead_nowhere() -> None:
    with scripted_control({"DeleteProvider": deletion}) as gateway:
        result = run_client(gateway.url, "provider", "delete", "used", "--force")
    assert (result.exit_code, result.stdout) == (0, "Deleted provider used\n")
    assert "warning: route fast leads nowhere now" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (("create", "--name", "work", "--type", "open-ai", "--credential", f"A={KEY}"), "did you mean openai?"),
        (
            (*CREATE, "--credential", f"A={KEY}", "--config", "OPENAI_BASEURL=http://a/v1"),
            "did you mean OPENAI_BASE_URL?",
        ),
        ((*CREATE, "--credential", f"A={KEY}"), ""),
        (("update", "work", "--config", "A=b"), "inference cannot be routed to type"),
        (("update", "work", "--credential", f"A={KEY}"), ""),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_record_that_inference_cannot_use_is_stored_with_a_warning(
    arguments: tuple[str, ...], warned: str, output: str
) -> None:
    with scripted_control(ECHO) as gateway:
        result = run_client(gateway.url, "provider", *arguments, "-o", output)
    assert result.exit_code == 0, result.output
    assert warned in result.stderr
    assert bool(result.stderr) is bool(warned), result.stderr
    assert "warning" not in result.stdout

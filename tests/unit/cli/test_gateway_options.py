"""Where `sandbox run` and `sandbox proxy` take their routes from: exactly one place, and what is told otherwise."""

import click
import pytest
from click.testing import CliRunner, Result

from pointsman.cli.gateway_options import GatewayOptions, gateway_options, misspelt_variables
from pointsman.cli.main import cli

URL = "http://127.0.0.1:8782"
NOTHING = dict.fromkeys(
    (
        "POINTSMAN_GATEWAY",
        "POINTSMAN_TOKEN_FILE",
        "POINTSMAN_GATEWAY_CA",
        "POINTSMAN_GATEWAY_CERT",
        "POINTSMAN_GATEWAY_KEY",
    )
)


def sandbox(command: str, *options: str, **environ: str) -> Result:
    rest = ["--ca-dir", "/nowhere/ca"] if command == "proxy" else ["--", "true"]
    return CliRunner().invoke(cli, ["sandbox", command, *options, *rest], env={**NOTHING, **environ})


@pytest.mark.parametrize("command", ["run", "proxy"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--inference-routes FILE or --gateway URL"),
        (("--inference-routes", "/nowhere/routes.yaml", "--gateway", URL), "both given"),
        (("--gateway", URL), "--token-file"),
        (("--gateway", "http://10.0.0.1:8782", "--token-file", "/nowhere"), "--gateway is plain text"),
        (("--gateway", "gateway.example", "--token-file", "/nowhere"), "no port"),
        (("--gateway", URL, "--gateway-ca", "ca.pem", "--token-file", "/nowhere"), "https://"),
        (("--gateway", "https://a.example:1", "--gateway-cert", "c.pem", "--token-file", "/nowhere"), "--gateway-key"),
    ],
)
def test_what_is_missing_or_too_much_is_a_usage_error_with_the_next_step(
    command: str, options: tuple[str, ...], told: str
) -> None:
    result = sandbox(command, *options)
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize("command", ["run", "proxy"])
def test_an_explicit_route_file_wins_over_the_environment(command: str) -> None:
    result = sandbox(command, "--inference-routes", "", POINTSMAN_GATEWAY="rubbish")
    assert result.exit_code != 2
    assert "no such file" in result.output


@pytest.mark.parametrize("command", ["run", "proxy"])
def test_the_environment_may_name_the_gateway_and_is_named_when_it_is_wrong(command: str) -> None:
    result = sandbox(command, POINTSMAN_GATEWAY="http://10.0.0.1:8782")
    assert result.exit_code == 2
    assert "POINTSMAN_GATEWAY is plain text" in result.output


def test_every_option_may_come_from_the_environment() -> None:
    found: list[GatewayOptions] = []

    @click.command()
    @gateway_options
    def command(gateway: GatewayOptions) -> None:
        found.append(gateway)

    environ = {
        "POINTSMAN_GATEWAY": "https://a.example:1",
        "POINTSMAN_TOKEN_FILE": "t",
        "POINTSMAN_GATEWAY_CA": "a",
        "POINTSMAN_GATEWAY_CERT": "c",
        "POINTSMAN_GATEWAY_KEY": "k",
    }
    assert CliRunner().invoke(command, env=environ).exit_code == 0
    assert CliRunner().invoke(command, ["--gateway", "https://b.example:2"], env=environ).exit_code == 0
    assert CliRunner().invoke(command, env=NOTHING).exit_code == 0
    first, second, third = found
    assert first.token_file == "t"
    address = first.address()
    assert (address.url, address.ca_file) == ("https://a.example:1", "a")
    assert (address.certificate_file, address.key_file) == ("c", "k")
    assert (first.from_environment, second.from_environment) == (True, False)
    assert second.address().url == "https://b.example:2"
    assert (third.url, third.token_file, third.address(URL).url) == ("", "", URL)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("POINTSMAN_GATEWY", "POINTSMAN_GATEWAY"),
        ("POINTSMAN_GATEWAY_URL", "POINTSMAN_GATEWAY"),
        ("POINTSMAN_TOKEN", "POINTSMAN_TOKEN_FILE"),
        ("POINTSMAN_TOKENFILE", "POINTSMAN_TOKEN_FILE"),
        ("POINTSMAN_GATEWAY_CERTS", "POINTSMAN_GATEWAY_CERT"),
        ("POINTSMAN_DATADIR", "POINTSMAN_DATA_DIR"),
    ],
)
def test_a_misspelt_variable_is_told_with_the_one_that_was_meant(given: str, meant: str) -> None:
    assert misspelt_variables([given]) == [(given, meant)]


def test_other_variables_are_nobodys_slips() -> None:
    others = ("POINTSMAN_KEY", "POINTSMAN_KEY_FILE", "POINTSMAN_LISTEN__GRPC", "POINTSMAN_DATABASE_URL")
    assert misspelt_variables([*NOTHING, *others, "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS", "POINTSMAN_OWN_THING"]) == []
    assert misspelt_variables(["GATEWY", "PATH", "pointsman_gatewy"]) == []


def test_a_command_warns_of_a_misspelt_variable() -> None:
    result = sandbox("run", POINTSMAN_GATEWY=URL)
    assert "warning: nothing reads POINTSMAN_GATEWY; did you mean POINTSMAN_GATEWAY?" in result.output


@pytest.mark.parametrize(
    "url", ["foo://gateway.example:8782", "gateway.example:99999", "https://a:b@gateway.example:1"]
)
def test_what_is_wrong_with_a_gateways_address_is_said_in_its_own_terms(url: str) -> None:
    output = sandbox("run", "--gateway", url, "--token-file", "/nowhere").output
    assert "write https://HOST:PORT, for example https://gateway.example:8782" in " ".join(output.split())
    assert "mock://" not in output
    assert "api_key_env" not in output

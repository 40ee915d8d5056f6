"""A pointsman.yaml that uses every key at once works as it stands, on a real gateway.

Not here: what each key does, and what is said of mistakes (tests/unit/config).
"""

import contextlib
import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from pointsman.config.chain_entry import KEYS as ROUTE_KEYS
from pointsman.config.provider_entry import KEYS as PROVIDER_KEYS
from pointsman.config.setting_keys import KEYS
from tests.support.canary import KEY
from tests.support.dialects import Say
from tests.support.gateway_process import GatewayProcess
from tests.support.llama_server import model_path
from tests.support.nats_server import nats_server
from tests.support.ports import free_ports
from tests.support.scripted_model import Failure, ScriptedModel

EVERYTHING = """
role: all
nats_url: "%(nats)s"
listen: {data: "127.0.0.1:%(data)s", control: "127.0.0.1:%(control)s", grpc: "127.0.0.1:%(grpc)s"}
public_data_url: https://gateway.example:8780/v1
data_dir: state
database_url: sqlite:///state/records.db
key_file: state/at-rest.key
secrets_dir: keys
auth: {data: auto, grpc: token, metrics: token}
tls: {cert: tls.crt, key: tls.key, client_ca: clients.crt}
default_route: fast
direct_allowed_cidrs: [10.20.0.0/16, 'fd00::/64']
operation_log: {dir: journal, keep_days: 30}
usage_keep_days: 400
receipts: [fast]
providers:
  - {name: groq, type: openai_compatible, base_url: "%(groq)s", model: big, daily_request_limit: 14400,
     requests_per_minute: 30, reset_timezone: UTC, error_code_path: error.detail.code,
     error_mappings: [{http_status: 418, error_code: spent, category: rate_limit}]}
  - {name: gemini, type: openai_compatible, base_url: "%(gemini)s", api_key: none}
  - {name: local, type: local_gguf, model_path: small.gguf}
  - {name: practice, type: mock, base_url: "mock://practice"}
routes:
  - {name: fast, kind: chain, candidates: [{provider: groq}, {provider: gemini, model: bigger}],
     strategy: least_used, fallback: local, request_timeout: 300, context: drop-duplicates}
"""
SPENT = Failure(418, {"error": {"detail": {"code": "SPENT"}}})
"""What only the mapping understands: without it this would be the client's answer."""


def lay_out(directory: Path, ports: dict[str, int], urls: dict[str, str]) -> Path:
    authority = trustme.CA()
    pair = authority.issue_cert("localhost", "127.0.0.1")
    (directory / "tls.crt").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    pair.private_key_pem.write_to_path(str(directory / "tls.key"))
    (directory / "tls.key").chmod(0o600)
    authority.cert_pem.write_to_path(str(directory / "clients.crt"))
    (directory / "small.gguf").symlink_to(model_path())
    (directory / "keys").mkdir()
    (directory / "keys" / "groq_api_key").write_text(KEY)
    file = directory / "pointsman.yaml"
    file.write_text(EVERYTHING % {**ports, **urls})
    return file


def ask(directory: Path, port: int) -> tuple[int, str, str]:
    context = ssl.create_default_context(cafile=directory / "clients.crt")
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=40, context=context)
    with contextlib.closing(connection):
        body = json.dumps({"model": "anything", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["x-pointsman-model"], answer.headers["x-pointsman-attempts"]


def test_the_example_uses_every_key_there_is() -> None:
    parsed: dict[str, Any] = yaml.safe_load(EVERYTHING.replace("%(", "(").replace(")s", ")"))
    given = {key for key in parsed if not isinstance(parsed[key], dict)} - {"providers", "routes"}
    given |= {f"{key}.{inner}" for key in parsed if isinstance(parsed[key], dict) for inner in parsed[key]}
    assert given == {key.path for key in KEYS}
    assert {key for each in parsed["providers"] for key in each} == set(PROVIDER_KEYS.names)
    assert {key for each in parsed["routes"] for key in each} == set(ROUTE_KEYS.names)


@pytest.mark.timeout(120)
def test_a_gateway_does_what_all_keys_together_say(tmp_path: Path) -> None:
    ports = dict(zip(("data", "control", "grpc"), free_ports(3), strict=True))
    with (
        ScriptedModel(lambda _: SPENT) as groq,
        ScriptedModel(lambda _: Say("hello")) as gemini,
        contextlib.ExitStack() as stack,
    ):
        nats = stack.enter_context(nats_server(tmp_path))
        file = lay_out(tmp_path, ports, {"groq": groq.url, "gemini": gemini.url, "nats": nats.url})
        gateway = GatewayProcess(tmp_path / "state", list(ports.values()), "--config", str(file))
        stack.callback(gateway.close)
        gateway.start()
        # gemini has no limit, so that least_used asks groq first; its 418 is mapped, and it is not asked again.
        assert ask(tmp_path, ports["data"]) == (200, "bigger", "2")
        assert ask(tmp_path, ports["data"]) == (200, "bigger", "1")
        assert [each.fields["authorization"] for each in groq.calls] == [f"Bearer {KEY}"]
        assert [each.body["model"] for each in (*groq.calls, *gemini.calls)] == ["big", "bigger", "bigger"]
        assert {"records.db", "at-rest.key", "quota.db"} <= {path.name for path in (tmp_path / "state").iterdir()}
        assert (tmp_path / "journal").is_dir()
    assert KEY not in "".join(gateway.lines)

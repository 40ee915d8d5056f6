"""What answers when nobody else of a chain does passes through the stages as any other answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.test_runner_stages import rows
from tests.support.played_runner import PlayedRunner
from tests.support.ports import free_ports
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data", "--receipts=all") as gateway:
        gateway.provide("away", f"http://127.0.0.1:{free_ports(1)[0]}/v1")
        gateway.provide("canned", "mock://answers")
        gateway.run("provider", "update", "canned", "--config", "MODEL=m")
        gateway.run("route", "create", "fast", "--candidate", "away=m", "--fallback", "canned", "--no-verify")
        gateway.until_served("fast")
        yield gateway


def test_an_answer_of_the_fallback_is_policed_counted_written_down_and_has_a_receipt(gateway: ServingGateway) -> None:
    admin = PlayedRunner(gateway)  # it speaks HTTP as the admin
    rules = [{"id": "number", "effect": "redact", "pattern": "[0-9]{6}"}, {"id": "deny", "effect": "block",
             "denied_fields": ["seed"]}]  # fmt: skip
    assert admin.rest("POST", "/policies", {"rules": rules}).status == 201
    assert admin.rest("PATCH", "/policies/1", {"state": "enforced"}).status == 200
    with gateway.connect() as client:

        def ask(**more: object) -> tuple[int, str]:
            body = {"model": "fast", "messages": [{"role": "user", "content": "call 123456 now"}], **more}
            gateway.send(client, body)
            answer = client.answer()
            return answer.status, (answer.value(b"x-pointsman-request-id") or b"").decode()

        wait_until(lambda: ask(seed=1)[0] == 403)
        gateway.run("budget", "create", "tries", "--route", "fast", "--requests", "2", "--window", "total")
        served: list[str] = []

        def used_up() -> bool:
            status, request_id = ask()
            served.extend([request_id] if status == 200 else [])
            return status == 429

        wait_until(used_up)
    receipt = f"/receipts/{served[-1]}"
    wait_until(lambda: admin.rest("GET", receipt).status == 200)
    made = admin.rest("GET", receipt).json
    assert (made["provider"], made["attempts"], made["policy_version"]) == ("canned", 2, 1)
    assert made["received"] != made["sent"]
    wait_until(lambda: any(each["request_id"] == served[-1] for each in rows(admin)))
    [row] = [each for each in rows(admin) if each["request_id"] == served[-1]]
    assert (row["provider"], row["attempts"], row["policy_hits"]) == ("canned", 2, 1)
    [state] = json.loads(gateway.run("budget", "status", "tries", "-o", "json"))
    assert (state["used"], state["left"]) == ("2", "0")

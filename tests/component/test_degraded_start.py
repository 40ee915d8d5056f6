"""What a gateway wants to be there before it starts, and what it can do without when it may be degraded."""

import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess, NotStarted
from tests.support.model_client import ModelClient
from tests.support.model_echo import ModelEcho


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def gateway_with(directory: Path, text: str, *options: str) -> GatewayProcess:
    file = directory / "pointsman.yaml"
    file.write_text(text)
    return GatewayProcess(directory / "data", (0, 0, 0), f"--config={file}", *options)


def server(name: str, url: str) -> str:
    return f"  - {{name: {name}, type: openai_compatible, base_url: '{url}', model: m, api_key: none}}\n"


def refusal(gateway: GatewayProcess) -> list[str]:
    """What a gateway says that does not start, without its warnings."""
    with pytest.raises(NotStarted) as raised:
        gateway.start()
    assert "Traceback" not in str(raised.value)
    return [line for line in str(raised.value).splitlines() if "warning" not in line]


@pytest.mark.guarantee("C3")
def test_every_fallback_that_does_not_answer_is_told_and_nothing_listens(tmp_path: Path) -> None:
    first, second = unused_url(), unused_url()
    text = (
        f"providers:\n{server('a', first)}{server('b', second)}  - {{name: up, type: mock, model: m}}\n"
        "routes:\n  - {name: one, candidates: [up], fallback: a}\n  - {name: two, candidates: [up], fallback: b}\n"
    )
    lines = refusal(gateway_with(tmp_path, text))
    assert len(lines) == 2
    for line, name, route, url in zip(lines, ("a", "b"), ("one", "two"), (first, second), strict=True):
        assert f"pointsman.yaml: provider {name}, the fallback of route {route}, does not answer at {url}: " in line
        assert line.endswith("Connection refused; start it, or start the gateway with --allow-degraded")


@pytest.mark.guarantee("C3")
def test_every_model_file_that_is_missing_is_told_in_the_same_way(tmp_path: Path) -> None:
    text = "providers:\n" + "".join(
        f"  - {{name: {name}, type: local_gguf, model_path: {name}.gguf}}\n" for name in "ab"
    )
    lines = refusal(gateway_with(tmp_path, text))
    assert len(lines) == 2
    for line, name in zip(lines, "ab", strict=True):
        assert (
            f"model_path {tmp_path / name}.gguf: no such file; fetch the model, or start with --allow-degraded" in line
        )


@pytest.mark.guarantee("C3")
def test_what_is_missing_in_a_degraded_gateway_is_a_failed_attempt(tmp_path: Path) -> None:
    with ModelEcho() as echo:
        text = (
            f"providers:\n{server('busy', echo.url('busy'))}{server('up', echo.url('up'))}"
            f"{server('down', unused_url())}"
            "  - {name: local, type: local_gguf, model_path: none.gguf}\n"
            "routes:\n"
            "  - {name: with-local, candidates: [busy], fallback: local}\n"
            "  - {name: with-down, candidates: [busy], fallback: down}\n"
            "  - {name: sound, candidates: [up], fallback: local}\n"
        )
        gateway = gateway_with(tmp_path, text, "--allow-degraded")
        try:
            gateway.start()
            warnings = [line for line in gateway.lines if line.startswith("pointsman: warning: ")]
            assert [line for line in warnings if "none.gguf: no such file" in line]
            assert [line for line in warnings if line.endswith("; requests that need it fail until it is started\n")]
            with ModelClient(gateway.ports["data"]) as client:
                assert client.ask("sound").status == 200
                for name in ("with-local", "with-down"):
                    said = client.ask(name)
                    assert (said.status, said.json["error"]["code"]) == (503, "no_provider_available")
                    assert int(said.fields["x-pointsman-attempts"]) >= 1
                assert client.ask("sound").status == 200
        finally:
            gateway.close()


@pytest.mark.guarantee("C4")
def test_sighup_while_it_starts_does_not_end_it(tmp_path: Path) -> None:
    text = "providers: [{name: up, type: mock, model: m}]\nroutes: [{name: one, candidates: [up]}]\n"
    gateway, ready = gateway_with(tmp_path, text), threading.Event()
    sent: set[str] = set()
    pestering = threading.Thread(target=_pester, args=(gateway, ready, sent))
    pestering.start()
    try:
        gateway.start()
    finally:
        ready.set()
        pestering.join(10)
    try:
        assert sent == {"SigIgn", "SigCgt"}  # before there is a loop, and after
        first = len(gateway.lines)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        gateway.said("read again", first)
        assert gateway.end() == 0
    finally:
        gateway.close()


def _pester(gateway: GatewayProcess, ready: threading.Event, sent: set[str]) -> None:
    """Send SIGHUP again and again, from when the command itself has begun. `sent`: what it did about them."""
    while not ready.wait(0.01):
        process = gateway.process
        if process is None or process.poll() is not None:
            continue
        status = Path(f"/proc/{process.pid}/status").read_text()
        masks = dict(line.split(":") for line in status.splitlines() if line.startswith("Sig"))
        for how in ("SigIgn", "SigCgt"):
            if int(masks[how], 16) & 1 << signal.SIGHUP - 1:
                process.send_signal(signal.SIGHUP)
                sent.add(how)

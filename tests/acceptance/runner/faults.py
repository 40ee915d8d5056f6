"""What breaks, one after the other: every answer under way ends, in time and in words; afterwards all is as before."""

import signal
import statistics
import time
from functools import partial

from tests.acceptance.runner.asking import Asking, Refusal, until
from tests.acceptance.runner.transcript import Tell
from tests.acceptance.runner.world import READY, RunnerHost, Step, World

AT_ONCE = 0.1
"""Seconds in which a request for a runner that is not there is answered."""
SOON = 5.0
"""Seconds in which what can be noticed at once has ended an answer."""
BOUND = 65.0
"""Seconds in which what cannot be noticed has: 60, and 5 for a busy machine."""
FORGOTTEN = 25.0
"""Seconds in which a request of a process that died has lost its slot: 15, and air for a busy machine."""
_LEAVE_BOUND = 1.0
_LINES = 5
"""Of a stream before something happens to it."""


def _begun(made: World, worker: int, host: RunnerHost) -> Asking:
    """A stream in its midst."""
    asking = made.clients[worker].stream(host.alias)
    asking.read_lines(_LINES)
    made.broken.append(asking.nonce)
    return asking


def _ends(asking: Asking, since: float, bound: float) -> str:
    """Read it to its end, which must be an error event, in time. What is told of it."""
    end = asking.end()
    seconds = time.monotonic() - since
    asking.connection.close()
    assert end.error, f"the stream did not end with an error event: whole {end.is_whole}, {end.lines[-2:]}"
    assert end.is_whole, "the body was cut short"
    assert not any("[DONE]" in line for line in asking.lines)
    assert seconds <= bound, f"the stream ended after {seconds:.1f} s with {end.error}"
    return f"the stream of port {asking.connection.port} ended after {seconds:.2f} s: {end.error!r}"


def _refused(made: World, worker: int, host: RunnerHost) -> Refusal:
    refusal = made.clients[worker].refused(host.alias)
    made.refused.append(refusal.nonce)
    return refusal


def _at_once(found: list[Refusal], status: int, code: str) -> str:
    """All of them, judged by the half that was faster: a busy machine delays one now and then. What is told of it."""
    for each in found:
        assert (each.status, each.code) == (status, code), each
        assert each.seconds < SOON, each
    assert statistics.median(each.seconds for each in found) < AT_ONCE, ", ".join(map(str, found))
    slowest = max(each.seconds for each in found)
    return f"{found[0]}; the slowest of {len(found)}: {slowest * 1000:.0f} ms"


def _is_offline_at_once(made: World, host: RunnerHost) -> str:
    workers = range(len(made.clients))
    found = [_refused(made, worker, host) for _ in range(5) for worker in workers]
    return f"the next request: {_at_once(found, 503, 'runner_offline')}"


def _serve_again(made: World, hosts: tuple[RunnerHost, ...], tell: Tell) -> None:
    took = [
        until(partial(client.works, host.alias), f"{host.alias} is not served again")
        for host in hosts
        for client in made.clients
    ]
    tell(f"new requests are answered by each worker after {max(took):.1f} s")


def client_leaves(made: World, tell: Tell) -> None:
    host = made.hosts[0]
    asking = _begun(made, 0, host)
    left = time.time()
    asking.leave()
    until(lambda: host.left_by_client(asking.nonce), "llama.cpp's connection stayed open", 20)
    took = (host.left_by_client(asking.nonce) or 0) - left
    tell(f"llama.cpp's connection closed after {took:.2f} s")
    assert took <= _LEAVE_BOUND


def fifth(made: World, tell: Tell) -> None:
    host = made.hosts[0]
    sent = [
        made.clients[number % 2].send(host.alias, stream=True, max_tokens=400, ignore_eos=True) for number in range(4)
    ]
    until(lambda: all(host.reached(nonce) for _, nonce in sent), "four requests did not reach the model", 30)
    found = [_refused(made, worker, host) for worker in (1, 0, 1, 0, 1)]
    tell(f"the fifth: {_at_once(found, 429, 'runner_busy')}")
    for connection, nonce in sent:
        connection.close()
        made.broken.append(nonce)
    _serve_again(made, (host,), tell)


def not_approved(made: World, tell: Tell) -> None:
    host = made.hosts[1]
    allowlist = host.config / "allowlist.json"
    allowlist.unlink()
    refusal = _refused(made, 0, host)
    tell(f"without its allowlist: {refusal}")
    assert (refusal.status, refusal.code) == (403, "runner_model_not_allowed")
    told = host.command("models", "--register-all", key_file=made.user_key)
    assert host.alias in told, told
    tell(f"discovery approved again: the same alias, {host.alias}")
    _serve_again(made, (host,), tell)


def runner_stops(made: World, tell: Tell) -> None:
    host = made.hosts[0]
    for how in (signal.SIGTERM, signal.SIGKILL):
        asking = _begun(made, 0, host)
        began = time.monotonic()
        host.runner.end(how)
        tell(f"{how.name}: {_is_offline_at_once(made, host)}")
        tell(_ends(asking, began, SOON))
        made.clients[0].works(made.hosts[1].alias)
        host.runner.start(READY)
        _serve_again(made, (host,), tell)


def broker_dies(made: World, tell: Tell) -> None:
    askings = [_begun(made, 0, made.hosts[0]), _begun(made, 1, made.hosts[1])]
    began = time.monotonic()
    made.broker.kill()
    for asking in askings:
        tell(_ends(asking, began, SOON))
    for host in made.hosts:
        tell(_is_offline_at_once(made, host))
    made.broker.start()
    _serve_again(made, made.hosts, tell)


def _api_is_back(made: World, said: list[int], tell: Tell) -> None:
    """`said`: how many lines each runner had said before."""
    tell(_is_offline_at_once(made, made.hosts[0]))
    began = time.monotonic()
    made.api.start(READY)
    for host, before in zip(made.hosts, said, strict=True):
        host.runner.said(READY, before)
    tell(f"it was back, and both runners had dialled in again, after {time.monotonic() - began:.1f} s")
    _serve_again(made, made.hosts, tell)


def api_ends(made: World, tell: Tell) -> None:
    """A process that is killed says nothing: it is missed when it does not say that it works on a request."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        askings = [_begun(made, 0, made.hosts[0]), _begun(made, 1, made.hosts[1])]
        said = [len(host.runner.lines) for host in made.hosts]
        began = time.monotonic()
        status = made.api.end(how)
        assert status == (0 if how is signal.SIGTERM else -how), f"exit status {status}"
        for asking in askings:
            tell(f"{how.name}: {_ends(asking, began, SOON)}")
        _api_is_back(made, said, tell)


def worker_dies(made: World, tell: Tell) -> None:
    """The one end that nobody can put into words: who would say them is dead."""
    host = made.hosts[0]
    asking, other = _begun(made, 0, host), _begun(made, 1, made.hosts[1])
    began = time.monotonic()
    made.workers[0].end(signal.SIGKILL)
    end = asking.end()
    assert not end.is_done
    assert not end.is_whole, "a body that was cut short looked whole"
    tell(f"its client saw the connection break after {time.monotonic() - began:.2f} s, in the midst of the body")
    other.read_lines(20)
    tell("the other worker's stream went on")
    other.leave()
    made.workers[0].start(READY)
    until(partial(host.left_by_client, asking.nonce), "llama.cpp went on", FORGOTTEN)
    tell(f"llama.cpp's connection closed after {time.monotonic() - began:.1f} s: nobody asked for more")
    _serve_again(made, (host,), tell)


def silence(made: World, tell: Tell) -> None:
    first, second = made.hosts
    cut, stopped = _begun(made, 0, first), _begun(made, 1, second)
    said = [len(host.runner.lines) for host in made.hosts]
    began = time.monotonic()
    first.host.cut()
    second.runner.send(signal.SIGSTOP)
    ends = [made.pool.submit(_ends, asking, began, BOUND) for asking in (cut, stopped)]
    next_ones = [made.pool.submit(_refused, made, 0, second), made.pool.submit(_refused, made, 1, first)]
    for what, end in zip(("cable cut", "runner stopped"), ends, strict=True):
        tell(f"{what}: {end.result()}")
    for what, following in zip(("runner stopped", "cable cut"), next_ones, strict=True):
        refusal = following.result()
        tell(f"{what}: a request sent meanwhile: {refusal}")
        assert refusal.status in (503, 504)
        assert refusal.seconds <= BOUND
    for host in made.hosts:
        tell(f"then {_is_offline_at_once(made, host)}")
    first.host.join()
    second.runner.send(signal.SIGCONT)
    began = time.monotonic()
    for host, before in zip(made.hosts, said, strict=True):
        host.runner.said(READY, before)
    tell(f"both runners had dialled in again {time.monotonic() - began:.1f} s after they could")
    for host, asking in ((first, cut), (second, stopped)):
        until(partial(host.left_by_client, asking.nonce), "llama.cpp went on", 10)
    tell("llama.cpp's connections were closed")
    _serve_again(made, made.hosts, tell)


STEPS: tuple[tuple[str, Step], ...] = (
    ("the client leaves mid-stream", client_leaves),
    ("four requests at once, and a fifth", fifth),
    ("a model that is not approved on its machine, and a lost allowlist", not_approved),
    ("a runner is stopped mid-stream", runner_stops),
    ("the broker is killed mid-stream", broker_dies),
    ("the API process is stopped, and killed, mid-stream, and started again", api_ends),
    ("a data worker is killed mid-stream", worker_dies),
    ("a runner's cable is cut mid-stream, another runner is stopped (SIGSTOP) mid-stream", silence),
)

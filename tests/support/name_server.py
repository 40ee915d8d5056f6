"""A name server that counts and lies, in a network of its own.

The process alone sees it, by a resolv.conf mounted over the machine's, so every resolver that a library might bring
along is caught, not only the one that the code is known to use. Prints one JSON object.
"""

import asyncio
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pointsman.core.ai_model import DIRECT, AiModel
from pointsman.core.model_table import ModelTable
from pointsman.core.reach import ONLY_PUBLIC
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.routing.registered_models import direct_candidate
from tests.support.data_door import DataDoor
from tests.support.door import Door, candidate
from tests.support.probing import refused, resolved, run
from tests.support.raw_client import post
from tests.support.upstream import Upstream

METADATA = "169.254.169.254"
PUBLIC = "93.184.215.14"
MAPPED = "::ffff:127.0.0.1"
SILENT = "silent.example"
"""A name whose server never answers: a look-up takes 10 s."""
_SIOCSIFFLAGS, _SIOCGIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8913, 0x8916, 1
_A, _AAAA = 1, 28


def bring_up(name: str, address: str | None = None) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if address is not None:
            packed = struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, packed)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), _IFF_UP))


class NameServer:
    """Answers from a script: for each name a list of address lists, one per look-up, the last for ever."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self._answers: dict[str, Iterator[list[str]]] = {
            name: iter([*lists, *[lists[-1]] * 100]) for name, lists in answers.items()
        }
        self._now: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, client = self._sock.recvfrom(2048)
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
                at += 1 + query[at]
            name, question = ".".join(labels).lower(), query[12 : at + 5]
            self.asked.append(name)
            if name == SILENT:
                continue
            (kind,) = struct.unpack(">H", question[-4:-2])
            if kind == _A and name in self._answers:  # of a look-up's two questions it comes first
                self._now[name] = next(self._answers[name])
            family, size = (socket.AF_INET6, 16) if kind == _AAAA else (socket.AF_INET, 4)
            addresses = [each for each in self._now.get(name, ()) if (":" in each) == (kind == _AAAA)]
            records = b"".join(
                struct.pack(">HHHIH", 0xC00C, kind, 1, 0, size) + socket.inet_pton(family, address)
                for address in addresses
            )
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0)
            self._sock.sendto(head + question + records, client)


def count_door_queries(names: NameServer, connects: list[str]) -> dict[str, Any]:
    """How the door answers CONNECTs, how many names it asked for meanwhile, and how many one real look-up takes."""
    with Door(candidate("http://counted.example:9/v1")) as door:
        statuses = []
        for authority in connects:
            with door.connect() as client:
                client.send(b"CONNECT %b HTTP/1.1\r\nHost: x\r\n\r\n" % authority.encode("latin-1"))
                statuses.append(int(client.read_until(b"\r\n\r\n").split(b" ")[1]))
        asked = list(names.asked)
        with door.tunnel() as client:
            client.send(post())
            assert client.answer().status == 503
        return {"statuses": statuses, "asked": asked, "control": [each for each in names.asked if each not in asked]}


def rebind(names: NameServer) -> dict[str, Any]:
    """A name that is harmless when first asked for and a metadata address later; and one that is both at once."""
    with Upstream() as good, socket.create_server((METADATA, 0)) as forbidden:
        port = good.url.split(":")[2].split("/")[0]
        # The metadata service's port is the same, so only its address keeps it from being dialled.
        with socket.create_server((METADATA, int(port))) as twin:
            routes = [
                candidate(f"http://{name}.example:{port}/v1", protocols=(protocol,))
                for name, protocol in (("flips", "openai_chat_completions"), ("mixed", "openai_completions"))
            ]
            seen: list[Any] = []
            with Door(*routes) as door:
                for path in (b"/v1/chat/completions", b"/v1/chat/completions", b"/v1/completions"):
                    with door.tunnel() as client:
                        client.send(post(path=path, fields=b"Connection: close\r\n"))
                        if len(seen) != 1:
                            peer = good.accept()
                            host = (peer.request().value(b"host") or b"").decode()
                            peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
                        else:
                            host = ""
                        seen.append([client.answer().status, host.partition(":")[0]])
            dialled = sum(was_dialled(listener) for listener in (twin, forbidden))
    return {"seen": seen, "metadata connections": dialled, "asked": sorted(set(names.asked))}


def probe(names: NameServer) -> dict[str, Any]:
    """A route whose host is a metadata address by name is to be verified."""
    with socket.create_server((METADATA, 0)) as forbidden:
        text = run(refused(resolved(f"http://metadata.example:{forbidden.getsockname()[1]}/v1")))
        forbidden.settimeout(0.05)
        try:
            forbidden.accept()[0].close()
        except TimeoutError:
            return {"text": text, "dialled": False, "asked": sorted(set(names.asked))}
    return {"text": text, "dialled": True}


def confine(names: NameServer) -> dict[str, Any]:
    """A direct model's name: public when the model is made and when it is called first, then this machine, a metadata
    address, an IPv4 address in IPv6 dress, and public again."""
    with (
        Upstream(address=(PUBLIC, 0)) as good,
        socket.create_server(("127.0.0.1", good.port)) as loopback,
        socket.create_server((METADATA, good.port)) as metadata,
    ):
        url = asyncio.run(DirectEndpoints(ONLY_PUBLIC).checked(f"http://rebound.example:{good.port}"))
        model = direct_candidate(AiModel("0" * 32, "default", "M", "mine", DIRECT, None, url, "real", 0.0))
        statuses = []
        with DataDoor(table=ModelTable({"mine": model})) as data:
            for reached in (True, False, False, False, True):
                with data.connect() as client:
                    client.send(post(b'{"model":"mine"}'))
                    if reached:
                        peer = good.accept()
                        peer.request()
                        peer.respond(fields=b"Connection: close\r\n")
                    statuses.append(client.answer().status)
            lines = [line for line in data.logged().splitlines() if " upstream_failed " in line]
        dialled = sum(was_dialled(each) for each in (loopback, metadata))
    made = url.removesuffix(f":{good.port}")
    return {
        "made": made,
        "statuses": statuses,
        "reasons": [line.partition(" reason=")[2] for line in lines],
        "dialled inside": dialled,
        "asked": names.asked,
    }


def wait_for_silence(names: NameServer) -> dict[str, Any]:
    """Far more calls of a direct model whose name is never answered than there are threads for names, then one of an
    operator's provider whose name is."""
    with Upstream(address=(PUBLIC, 0)) as good:
        model = AiModel("0" * 32, "default", "M", "mine", DIRECT, None, f"http://{SILENT}", "real", 0.0)
        ours = candidate(f"http://public.example:{good.port}/v1", route="ours")
        table = ModelTable({"mine": direct_candidate(model), "ours": ours})
        with DataDoor(table=table) as data, ExitStack() as stack:
            waiting = [stack.enter_context(data.connect()) for _ in range(16)]
            for client in waiting:
                client.send(post(b'{"model":"mine"}'))
            while names.asked.count(SILENT) < 8:  # two questions for each of four threads
                time.sleep(0.005)
            with data.connect() as client:
                client.send(post(b'{"model":"ours"}'))
                peer = good.accept()
                peer.request()
                peer.respond(fields=b"Connection: close\r\n")
                status = client.answer().status
            answered, _, _ = select.select([client.sock for client in waiting], [], [], 0)
    return {"status": status, "answered": len(answered)}


def was_dialled(listener: socket.socket) -> bool:
    listener.settimeout(0.05)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def main() -> None:
    scenario, arguments = sys.argv[1], json.loads(sys.argv[2])
    bring_up("lo")
    bring_up("lo:1", METADATA)
    bring_up("lo:2", PUBLIC)
    with tempfile.TemporaryDirectory() as directory:
        for path, text in (
            ("/etc/resolv.conf", "nameserver 127.0.0.1\n"),
            ("/etc/nsswitch.conf", "hosts: files dns\n"),
        ):
            own = Path(directory) / Path(path).name
            own.write_text(text)
            if Path(path).exists():
                subprocess.run(["mount", "--bind", str(own), path], check=True)
        names = NameServer(
            {
                "flips.example": [["127.0.0.1"], [METADATA]],
                "mixed.example": [[METADATA, "127.0.0.1", METADATA]],
                "metadata.example": [[METADATA]],
                "public.example": [[PUBLIC]],
                "rebound.example": [[PUBLIC], [PUBLIC], ["127.0.0.1"], [METADATA], [MAPPED], [PUBLIC]],
            }
        )
        match scenario:
            case "door":
                result = count_door_queries(names, arguments)
            case "confined":
                result = confine(names)
            case "silent":
                result = wait_for_silence(names)
            case "probe":
                result = probe(names)
            case _:
                result = rebind(names)
        for path in ("/etc/resolv.conf", "/etc/nsswitch.conf"):
            subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)
    print(json.dumps(result), flush=True)
    os._exit(0)  # threads may still wait for an answer to a name


def in_own_network(scenario: str, arguments: list[str]) -> dict[str, Any]:
    """Run a scenario in a network of its own. Needs root."""
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.support.name_server"]
    finished = subprocess.run(
        [*command, scenario, json.dumps(arguments)], capture_output=True, text=True, timeout=50, check=False
    )
    assert finished.returncode == 0, finished.stderr
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


if __name__ == "__main__":
    main()

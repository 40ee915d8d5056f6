"""What bundles cost a gateway: one fetch, and a thousand sandboxes that poll every five seconds.

    .venv/bin/python bench/control_plane.py [--sandboxes 1000] [--seconds 20] [--providers 100]

The gateway is a real process on SQLite. Beside it stands a bare grpc.aio server that answers the same bytes to the same
load: what is over that is ours.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import grpc.aio

from pointsman.rpc.gen import (
    control_pb2,
    control_pb2_grpc,
    datamodel_pb2,
    inference_pb2,
    inference_pb2_grpc,
    openshell_pb2,
    openshell_pb2_grpc,
)

INTERVAL_SECONDS = 5.0
Metadata = tuple[tuple[str, str], ...]
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def started(command: Sequence[str], marker: str) -> Iterator[tuple[int, str]]:
    """A server; its pid, and what its line says behind the marker."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if marker in line:
                yield process.pid, line.partition(marker)[2].split()[0]
                return
        raise RuntimeError("the server did not start")
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


def gateway(directory: str) -> "contextlib.AbstractContextManager[tuple[int, str]]":
    """`pointsman gateway` on free ports."""
    listen = [f"--listen-{each}=127.0.0.1:0" for each in ("data", "control", "grpc")]
    pointsman = str(Path(sys.executable).with_name("pointsman"))
    return started([pointsman, "gateway", "--data-dir", directory, *listen], "grpc=")


def bare(answer: bytes) -> "contextlib.AbstractContextManager[tuple[int, str]]":
    """A grpc.aio server that answers everything with the same bytes."""
    return started([sys.executable, str(Path(__file__).with_name("bare_grpc.py")), answer.hex()], "grpc=")


def admin_of(directory: str) -> Metadata:
    """What an admin's calls carry."""
    return (("authorization", f"Bearer {Path(directory, 'admin.token').read_text().strip()}"),)


async def furnish(address: str, admin: Metadata, providers: int, sandboxes: int) -> list[Metadata]:
    """Fill a gateway; the tokens of its sandboxes."""
    async with grpc.aio.insecure_channel(address) as channel:
        openshell, control = openshell_pb2_grpc.OpenShellStub(channel), control_pb2_grpc.ControlStub(channel)
        for number in range(providers):
            record = datamodel_pb2.Provider(
                name=f"p{number}",
                type="openai",
                credentials={"OPENAI_API_KEY": f"sk-{number:040}"},
                config={"OPENAI_BASE_URL": "mock://answers"},
            )
            await openshell.CreateProvider(openshell_pb2.CreateProviderRequest(provider=record), metadata=admin)
        for name in ("inference.local", "sandbox-system"):
            request = control_pb2.SetRouteRequest(name=name, provider_name="p7", model="m")
            await control.SetRoute(request, metadata=admin)
        tokens: list[Metadata] = []
        for number in range(sandboxes):
            made = await control.CreateSandboxToken(
                control_pb2.CreateSandboxTokenRequest(name=f"s{number}"), metadata=admin
            )
            tokens.append((("authorization", f"Bearer {made.token}"),))
        return tokens


async def fetch_times(address: str, token: Metadata, count: int) -> list[float]:
    """Milliseconds of fetches that come one after the other."""
    times = []
    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for _ in range(count):
            began = time.perf_counter()
            await stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=token)
            times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


@contextlib.asynccontextmanager
async def channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """So many connections, as so many sandboxes have them."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = [grpc.aio.insecure_channel(address, options) for _ in range(count)]
    try:
        yield opened
    finally:
        for channel in opened:
            await channel.close()


async def polled(address: str, pid: int, tokens: list[Metadata], seconds: float) -> tuple[float, int]:
    """Let every sandbox poll; the share of a core that the server used, and how many fetches there were."""
    fetches = 0

    async def sandbox(channel: grpc.aio.Channel, token: Metadata, offset: float, until: float) -> None:
        nonlocal fetches
        stub = inference_pb2_grpc.InferenceStub(channel)
        await asyncio.sleep(offset)
        while (now := time.monotonic()) < until:
            await stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=token)
            fetches += 1
            await asyncio.sleep(INTERVAL_SECONDS - (time.monotonic() - now))

    async with channels(address, len(tokens)) as opened:
        first = inference_pb2.GetInferenceBundleRequest()
        for channel, token in zip(opened, tokens, strict=True):  # connecting is not polling
            await inference_pb2_grpc.InferenceStub(channel).GetInferenceBundle(first, metadata=token)
        used, began = cpu_seconds(pid), time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, (channel, token) in enumerate(zip(opened, tokens, strict=True)):
                offset = INTERVAL_SECONDS * number / len(tokens)
                group.create_task(sandbox(channel, token, offset, began + seconds))
        return (cpu_seconds(pid) - used) / (time.monotonic() - began), fetches


async def measure(options: argparse.Namespace) -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as directory, gateway(directory) as (pid, address):
        admin = admin_of(directory)
        tokens = await furnish(address, admin, options.providers, options.sandboxes)
        async with grpc.aio.insecure_channel(address) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            answer = await stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=tokens[0])
        times = await fetch_times(address, tokens[0], options.fetches)
        share, fetches = await polled(address, pid, tokens, options.seconds)
        with bare(answer.SerializeToString()) as (bare_pid, bare_address):
            bare_times = await fetch_times(bare_address, tokens[0], options.fetches)
            bare_share, _ = await polled(bare_address, bare_pid, tokens, options.seconds)
    middle, bare_middle = statistics.median(times), statistics.median(bare_times)
    late = times[len(times) * 99 // 100]
    print(
        f"bundle fetch, {options.providers} providers: p50 {middle:.2f} ms, p99 {late:.2f} ms; "
        f"{middle / bare_middle:.2f} × a bare grpc.aio server ({bare_middle:.2f} ms)"
    )
    print(
        f"{options.sandboxes} sandboxes polling every {INTERVAL_SECONDS:g} s: {fetches} polls, {share:.1%} of a core; "
        f"{share / bare_share:.2f} × a bare grpc.aio server ({bare_share:.1%})"
    )
    return 0


def main(arguments: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxes", type=int, default=1000)
    parser.add_argument("--providers", type=int, default=100)
    parser.add_argument("--fetches", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20)
    return asyncio.run(measure(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

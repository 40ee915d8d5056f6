"""Where direct models may lead to, with networks that the operator has opened: when they are made, and at connect."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.reach import DirectReach
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.proxy.upstream.resolve import Resolver
from tests.support.rest import rest_api

OPENED = DirectReach((ipaddress.ip_network("10.20.0.0/16"), ipaddress.ip_network("127.0.0.1/32")))
NAMES = {
    "public.example": ["93.184.215.14", "2606:4700::1111"],
    "opened.example": ["10.20.0.1"],
    "closed.example": ["10.21.0.1"],
    "half.example": ["93.184.215.14", "192.168.0.1"],
    "metadata.example": ["169.254.169.254"],
}


async def lookup(host: str, port: int) -> Sequence[str]:
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return NAMES[host]


@pytest.mark.guarantee("M2")
def test_every_address_of_a_name_is_judged_when_a_model_is_made(tmp_path: Path) -> None:
    with rest_api(tmp_path, endpoints=DirectEndpoints(OPENED, lookup)) as api:
        found = {}
        for host in (*NAMES, "nowhere.example", "10.20.255.255", "10.21.0.0"):
            body = {"name": "M", "model_identifier": "m", "api_endpoint": f"https://{host}/v1"}
            found[host.removesuffix(".example")] = api.post("/ai-models", body).status
    assert found == {
        "public": 201,
        "opened": 201,
        "closed": 400,
        "half": 400,
        "metadata": 400,
        "nowhere": 409,
        "10.20.255.255": 201,
        "10.21.0.0": 400,
    }


@pytest.mark.guarantee("M2")
@pytest.mark.parametrize(("reach", "may"), [(DirectReach(), False), (OPENED, True)])
def test_the_address_that_is_dialled_is_judged_too(reach: DirectReach, may: bool) -> None:
    async def connect(port: int) -> None:
        resolver = Resolver(reach.refused)
        try:
            (await resolver.connect("127.0.0.1", port)).close()
        finally:
            resolver.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        if may:
            asyncio.run(connect(server.getsockname()[1]))
            server.accept()[0].close()
        else:
            with pytest.raises(UpstreamUnavailable, match="no address that may be dialled"):
                asyncio.run(connect(server.getsockname()[1]))
            with pytest.raises(BlockingIOError):
                server.accept()

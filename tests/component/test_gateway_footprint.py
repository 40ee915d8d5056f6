"""What a gateway with chains costs before anybody asks it anything."""

import os
import re
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess

MIB = 1024
"""In the kernel's KiB."""
_PROVIDERS = "".join(
    f"  - {{name: p{number}, type: openai_compatible, base_url: 'http://127.0.0.1:1/{number}/v1', model: m, "
    "api_key: none, daily_request_limit: 1000, requests_per_minute: 30}\n"
    for number in range(20)
)
FILE = (
    f"default_route: fast\nproviders:\n{_PROVIDERS}  - {{name: last, type: mock, model: m}}\nroutes:\n"
    "  - {name: fast, candidates: [p0, p1, p2, p3, p4, p5, p6, p7, p8, p9], strategy: least_used, fallback: last}\n"
    "  - {name: other, candidates: [p10, p11, p12, p13, p14], strategy: weighted, fallback: last}\n"
)


@pytest.mark.alone
def test_an_idle_gateway_with_chains_takes_less_than_150_mib_and_starts_soon(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(FILE)
    gateway = GatewayProcess(tmp_path / "data", (0, 0, 0), f"--config={file}")
    gateway.start()  # for the first time: tables are made
    try:
        fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{gateway.pid}/status").read_text())
    finally:
        gateway.close()
    assert resident is not None
    assert int(resident[1]) < 150 * MIB
    # Ready within 2 s where nothing else runs; twice that in CPU time where cores are shared.
    assert cpu_seconds < 4

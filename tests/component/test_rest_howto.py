"""The examples of docs/howto/use-the-rest-api.md do what they say, with the curl that is there."""

import re
from pathlib import Path

from pointsman.core.secret import Secret
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN_TOKEN
from tests.support.processes import run_to_end
from tests.support.rest import rest_api

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "use-the-rest-api.md"


def test_the_examples_of_the_page_work_in_their_order(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 7
    gateway, home = tmp_path / "gateway", tmp_path / "home"
    data = home / "data" / "pointsman"
    for directory in (gateway, data):
        directory.mkdir(parents=True)
    (data / "admin.token").write_text(ADMIN_TOKEN)
    with rest_api(gateway) as api:
        text = "\n".join(blocks).replace("127.0.0.1:8781", f"127.0.0.1:{api.port}")
        text = text.replace("https://api.openai.com/v1", "mock://answers")
        script = home / "page.sh"
        # By standard input: other processes could read it in the environment, and later ones in a file.
        script.write_text(f"set -euo pipefail\nread -r OPENAI_API_KEY\n{text}")
        environ = {"XDG_DATA_HOME": str(home / "data"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        done = run_to_end(["bash", str(script)], environ=environ, cwd=home, input=f"{KEY}\n")
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"verified":true' in done.stdout
        assert '"timeout_seconds":180' in done.stdout
        provider = api.running.call(api.running.control.providers.get("default", "main"))
        assert dict(provider.credentials) == {"OPENAI_API_KEY": Secret(KEY)}
        route = api.running.call(api.running.control.routes.get("default", "inference.local"))
        assert (route.model, route.version) == ("gpt-5-mini", 2)
        [token] = api.running.call(api.running.control.sandbox_tokens.list("default"))
        assert token.revoked_at is not None
    assert (home / "pointsman-header").stat().st_mode & 0o777 == 0o600
    assert (home / "build-agent.json").stat().st_mode & 0o777 == 0o600

"""A command whose answer cannot be written, or that has no standard input, says so; a token that got lost too."""

import os
import subprocess

import pytest

from pointsman.rpc.gen import control_pb2
from tests.support.processes import POINTSMAN, kept
from tests.support.scripted_control import Answer, scripted_control

LOST = "nobody has the token: 'pointsman sandbox token revoke ci', then make another"
ANSWERS: dict[str, Answer] = {
    "CreateSandboxToken": lambda request: control_pb2.CreateSandboxTokenResponse(
        sandbox_token=control_pb2.SandboxToken(name=request.name), token="pointsman-sandbox-1"
    ),
    "ListRoutes": lambda _: control_pb2.ListRoutesResponse(),
}


def said(command: str) -> str:
    """Standard error of a shell's command line that fails."""
    with scripted_control(ANSWERS) as gateway:
        environ = {**os.environ, "POINTSMAN_GATEWAY": gateway.url, "POINTSMAN": POINTSMAN}
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=50, env=environ, check=False
        )
    kept(done)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    return done.stderr


@pytest.mark.parametrize(
    ("where", "why"), [("> /dev/full", "no space left on device"), (">&-", "standard output is closed")]
)
def test_an_answer_that_cannot_be_written_is_told(where: str, why: str) -> None:
    assert f"it is done, but the answer could not be written: {why}" in said(f'"$POINTSMAN" route list {where}')
    lost = said(f'"$POINTSMAN" sandbox token create ci {where}')
    assert f"{why}; {LOST}" in lost
    assert "pointsman-sandbox-1" not in lost


def test_a_key_from_a_standard_input_that_is_closed_is_asked_for_otherwise() -> None:
    create = '"$POINTSMAN" provider create --name a --type openai --credential OPENAI_API_KEY=- <&-'
    assert said(create) == "pointsman: standard input is closed; pipe the key in\n"

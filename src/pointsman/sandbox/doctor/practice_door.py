"""A throwaway door on loopback with a canned route, so that clients can be tried where no sandbox is."""

import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

from pointsman.core.candidate import INFERENCE_LOCAL, Candidate, make_bundle
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.secret import Secret
from pointsman.data_plane import open_router
from pointsman.proxy.process import bind
from pointsman.sandbox.authority import CertificateAuthority
from pointsman.sandbox.environment import Door, sandbox_environment

_CANNED = Candidate(INFERENCE_LOCAL, Endpoint("mock", "doctor", 0, ""), "canned", tuple(InferenceProtocol))


@contextlib.asynccontextmanager
async def practice_door(
    environ: Mapping[str, str], secrets: Collection[Secret], key_variables: Collection[str]
) -> AsyncIterator[dict[str, str]]:
    """The environment that a sandbox would give a command, and a door that it leads to while this lasts.

    `secrets` and `key_variables` are of the route file, and stay out of that environment.
    """
    authority = CertificateAuthority(time.time)
    with tempfile.TemporaryDirectory(prefix="pointsman-ca-") as directory:
        os.chmod(directory, 0o755)  # noqa: S103  # certificates
        files = authority.write(Path(directory), environ)
        with bind(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            async with open_router(make_bundle((_CANNED,))) as router:
                await router.serve_tunnel(listener, authority.tls_context)
                door = Door(f"http://{host}:{port}", str(files.authority), str(files.bundle))
                yield sandbox_environment(environ, door, secrets=secrets, key_variables=key_variables)

"""Runs one process with a time limit and a bound on what it says. Knows nothing of doors."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence

from pointsman.sandbox.doctor.reading import Finished

MOST_OUTPUT = 256 * 1024
"""Bytes; verbose clients say about 10 KiB for one request."""
_COULD_NOT_START = 126


async def run(
    argv: Sequence[str], environ: Mapping[str, str], directory: str, seconds: float, stdin: str = ""
) -> Finished:
    """Run to the end or to the limit; then nothing of its process group is left. Raises nothing of its own.

    Git takes no configuration from the directories above `directory`: others may have written it.
    """
    timed_out = False
    output = bytearray()
    with tempfile.TemporaryFile() as question:  # not a pipe: many close it unread
        question.write(stdin.encode())
        question.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=question,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=directory,
                env={**environ, **_keep_git_in(directory)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Finished(_COULD_NOT_START, f"cannot run {argv[0]}: {error}")
    try:
        async with asyncio.timeout(seconds):
            assert process.stdout is not None
            while data := await process.stdout.read(1 << 16):
                output += data[: MOST_OUTPUT - len(output)]
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return Finished(process.returncode or 0, output.decode("utf-8", "replace"), timed_out)


def _keep_git_in(directory: str) -> dict[str, str]:
    return {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(directory))}

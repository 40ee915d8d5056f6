"""A supervisor without a proxy, run as a process of its own so that tests can signal and kill it.

python -m tests.support.supervisor ISOLATION CWD ARGV…: runs ARGV, passes signals on, exits with its status. With
`TERMINAL` set it first makes its standard input the terminal of a session of its own.
"""

import asyncio
import fcntl
import os
import sys
import termios

import uvloop

from pointsman.sandbox.child import NOBODY
from pointsman.sandbox.isolation import PASSED_SIGNALS, Command, Isolation, start


async def supervise(isolation: Isolation, cwd: str, argv: tuple[str, ...]) -> int:
    """Run a command to its end."""
    user = None if isolation is Isolation.NONE else NOBODY
    command = Command(argv, user, cwd, os.environ["PATH"])
    process = await start(command, isolation, 0 if isolation is Isolation.NONE else 3128)
    loop = asyncio.get_running_loop()
    try:
        for number in PASSED_SIGNALS:
            loop.add_signal_handler(number, process.send_signal, number)
        await process.release(os.environ)
        return await process.wait()
    finally:
        await process.close()


def main() -> int:
    """The program."""
    if os.environ.pop("TERMINAL", ""):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(supervise(Isolation(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])))
    if os.isatty(0):
        # Only the terminal's foreground job may read from it.
        print("after:", sys.stdin.readline().strip(), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())

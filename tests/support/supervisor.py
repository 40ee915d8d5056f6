"""A supervisor without a proxy, run as a process of its own so that tests can signal and kill it.

python -m tests.support.supervisor ISOLATION CWD ARGV…: runs ARGV, passes signals on, exits with its status, or 125
and a line when it could not start. Told by its environment, in variables that the command does not get:

TERMINAL  first make standard input the terminal of a session of its own
REPORT    print what the command tells the listener, which nobody serves otherwise
OPERATOR  UID:HOME of the user, where root has the choice
EXPOSE, BLANK  paths, separated by colons
"""

import asyncio
import fcntl
import os
import shutil
import sys
import termios

import uvloop

from pointsman.sandbox.child import NOBODY, CannotStart, User, calling_user
from pointsman.sandbox.choice import Isolation
from pointsman.sandbox.isolation import PASSED_SIGNALS, SandboxProcess, start
from pointsman.sandbox.orders import Command


def user_for(isolation: Isolation, operator: str) -> User | None:
    """Whom the command runs as."""
    if isolation is Isolation.NONE:
        return None
    if isolation is Isolation.BWRAP:
        return calling_user(None, os.environ)
    if not operator:
        return NOBODY
    uid, _, home = operator.partition(":")
    return User(int(uid), int(uid), uid, (home,))


async def relay_report(process: SandboxProcess) -> None:
    """Print what the command sends to the proxy's port."""
    loop = asyncio.get_running_loop()
    connection, _ = await loop.sock_accept(process.listener)
    with connection:
        connection.setblocking(False)
        while data := await loop.sock_recv(connection, 65536):
            print(data.decode(), end="", flush=True)


async def supervise(isolation: Isolation, cwd: str, argv: tuple[str, ...]) -> int:
    """Run a command to its end."""
    told = {name: os.environ.pop(name, "") for name in ("REPORT", "OPERATOR", "EXPOSE", "BLANK")}
    expose, blank = (tuple(filter(None, told[name].split(":"))) for name in ("EXPOSE", "BLANK"))
    user = user_for(isolation, told["OPERATOR"])
    command = Command(argv, user, cwd, os.environ["PATH"], expose, blank=blank)
    port = 0 if isolation is Isolation.NONE else 3128
    process = await start(command, isolation, port, shutil.which("bwrap"))
    loop = asyncio.get_running_loop()
    try:
        for number in PASSED_SIGNALS:
            loop.add_signal_handler(number, process.send_signal, number)
        await process.release(os.environ)
        if told["REPORT"]:
            await relay_report(process)
        return await process.wait()
    finally:
        await process.close()


def main() -> int:
    """The program."""
    if os.environ.pop("TERMINAL", ""):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            status = runner.run(supervise(Isolation(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])))
        except CannotStart as error:
            print(error, file=sys.stderr)
            return 125
    if os.isatty(0):
        # Only the terminal's foreground job may read from it.
        print("after:", sys.stdin.readline().strip(), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())

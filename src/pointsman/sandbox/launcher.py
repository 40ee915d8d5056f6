"""The program that becomes an isolated command. Executed, never imported: standard library only, no pointsman.

It is started as `python -I -S launcher.py FD`, where FD is one end of a socket pair, and turns into:

    supervisor (pointsman)      serves the listener, sends signals, waits for the keeper
    └─ keeper                   host side: owns the private HOME, ends everything when the supervisor dies
       └─ init                  process 1 of the sandbox's namespaces: reaps, passes signals on
          └─ CMD                the command

A PID namespace, and not a subreaper, is what lets nothing survive: when its process 1 ends, for whatever reason,
the kernel kills every other member, daemonised or not, even when the supervisor and the keeper were killed too.
With isolation `none` keeper and init are one process, a subreaper, and that promise is only a best effort.

Conversation, one JSON object a line: orders in, `ready` out (with the listener's descriptor), `environment` in,
`started` or `error` out, later `stopped` out each time CMD suspends itself. Signals to pass on arrive as real-time
signals, SIGRTMIN + n for signal n, because those are queued and cannot be mistaken for what the terminal sends.

It does not decide anything: what to hide, who to become and what to run comes with the orders.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

# <linux/sched.h>, <sys/mount.h>, <linux/prctl.h>, <linux/keyctl.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
SECCOMP_MODE_FILTER, KEYCTL_JOIN_SESSION_KEYRING = 2, 1
CAPABILITY_VERSION_3 = 0x20080522
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

COULD_NOT_START = 125
BACKLOG = 1024
END = int(signal.SIGRTMIN)  # plus 0: end everything
PASSED = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
)
AWAITED = PASSED | {signal.SIGCHLD, signal.SIGCONT} | set(range(END, signal.SIGRTMAX + 1))

libc = ctypes.CDLL(None, use_errno=True)


class Channel:
    """The supervisor's end of the conversation, as seen from here."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.set_inheritable(False)
        self.stage = "orders"
        """What is being done now: the word for it when it fails."""
        self._buffer = b""

    def receive(self) -> dict[str, Any]:
        """The next message; the end of the conversation is the end of this process."""
        while b"\n" not in self._buffer:
            data = self.socket.recv(1 << 18)
            if not data:
                os._exit(COULD_NOT_START)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, message: dict[str, Any], *descriptors: int) -> None:
        """A supervisor that is gone does not matter here: its death is noticed elsewhere."""
        try:
            socket.send_fds(self.socket, [json.dumps(message).encode() + b"\n"], descriptors, socket.MSG_DONTWAIT)
        except OSError:
            return

    def fail(self, error: BaseException) -> None:
        """Tell which stage went wrong, and how; the supervisor finds the words for the operator."""
        number = error.errno if isinstance(error, OSError) else None
        self.send({"failed": self.stage, "errno": number, "detail": f"{type(error).__name__}: {error}"})


def call(what: str, function: Callable[..., int], *arguments: object) -> None:
    """Call into libc; a failure is an OSError that says what was tried."""
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(what: str, option: int, *arguments: int) -> None:
    """prctl is variadic: every argument must be passed at full width."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    call(what, libc.prctl, option, *(ctypes.c_ulong(argument) for argument in padded))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2); `source` is a path, or a word for kinds that have none."""
    call(
        f"mounting on {target}",
        libc.mount,
        os.fsencode(source),
        os.fsencode(target),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        data.encode(),
    )


def exit_code(status: int) -> int:
    """A wait status in the shell's manner: 128 + n for a death by signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- what the sandbox can see


def cover(path: str, binds: list[list[Any]]) -> None:
    """Put an empty read-only directory over `path`, and into it the things of `binds`, a list of [path, writable]."""
    # Opened first: once the cover lies over them they have no path. O_PATH asks for no right on the thing itself.
    held = [(target, writable, os.open(target, os.O_PATH | os.O_CLOEXEC)) for target, writable in binds]
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for target, writable, descriptor in held:
        source = f"/proc/self/fd/{descriptor}"
        if os.path.isdir(source):
            os.makedirs(target, 0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # What is mounted below a read-only tree stays outside: a remount would not reach it.
        mount(source, target, None, MS_BIND | (MS_REC if writable else 0))
        if not writable:
            mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(descriptor)
    mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def kernel_views() -> None:
    """Fresh /proc and /sys: the host's would show its processes and its network interfaces."""
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    cgroup = "/sys/fs/cgroup"
    # Kept, because runtimes size their heaps and thread pools by it.
    held = os.open(cgroup, os.O_PATH | os.O_CLOEXEC) if os.path.isdir(cgroup) else None
    if os.path.isdir("/sys"):
        mount("sysfs", "/sys", "sysfs", quiet | MS_RDONLY)
    if held is not None:
        if os.path.isdir(cgroup):
            mount(f"/proc/self/fd/{held}", cgroup, None, MS_BIND | MS_REC)
        os.close(held)
    mount("proc", "/proc", "proc", quiet)


def loopback_up() -> None:
    """A new network namespace has `lo`, but down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def isolate(orders: dict[str, Any], channel: Channel) -> socket.socket:
    """Enter the namespaces and return the listener, the only thing that leads out of them."""
    channel.stage = "namespaces"
    call("unshare", libc.unshare, CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC)
    channel.stage = "view"
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    for path, binds in orders["view"]:
        cover(path, binds)
    kernel_views()
    channel.stage = "listener"
    loopback_up()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", orders["port"]))
    listener.listen(BACKLOG)
    return listener


# --- what the sandbox may do


def drop(user: dict[str, Any], system_calls: dict[str, Any]) -> None:
    """Become the unprivileged user, with no way back."""
    for capability in range(64):
        try:
            prctl("dropping a capability", PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # past the last one this kernel knows
    prctl("clearing ambient capabilities", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    os.setgroups([])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    # Said outright, for inheritable sets and secure bits that setresuid leaves alone.
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    call("dropping capabilities", libc.capset, header, bytes(24))
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    # Init has the command's uid but must not be its to trace.
    prctl("dumpable", PR_SET_DUMPABLE, 0)
    # The operator's session keyring would go along. Without keyrings in the kernel there is none to leave.
    libc.syscall(ctypes.c_long(system_calls["keyctl"]), ctypes.c_ulong(KEYCTL_JOIN_SESSION_KEYRING), None)
    code = bytes.fromhex(system_calls["filter"])
    program = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(program)))
    prctl("system call filter", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(head))


# --- the command


def execute(orders: dict[str, Any], environment: dict[str, str], parent: int, channel: Channel) -> NoReturn:
    """In the child: become CMD."""
    # Each fork and each change of uid clears it.
    prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(COULD_NOT_START)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel.stage = "directory"
    os.chdir(orders["cwd"])
    channel.stage = "execute" if os.path.exists(orders["path"]) else "find"
    os.execve(orders["path"], orders["argv"], environment)  # noqa: S606 - no shell is the point


def spawn(orders: dict[str, Any], environment: dict[str, str], channel: Channel) -> int | None:
    """Start CMD and return its process id once it really runs; None when it does not."""
    reading, writing = os.pipe()  # closed by a successful exec
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            execute(orders, environment, parent, channel)
        except BaseException as error:
            channel.fail(error)
            os.write(writing, b"!")
        os._exit(COULD_NOT_START)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return None if pipe.read() else child


def attend(command: int, channel: Channel, *, isolated: bool) -> int:
    """Reap and pass signals on until CMD ends; returns its exit code."""
    echoes: set[int] = set()
    while True:
        received = signal.sigwaitinfo(AWAITED)
        number = received.si_signo
        if number == signal.SIGCHLD:
            code = reap(command, channel)
            if code is not None:
                return code
        elif number == signal.SIGCONT:
            # A shell that resumes the job wakes the job's process group; CMD may have left that for its own.
            os.kill(command, signal.SIGCONT)
        elif number == END:
            os.kill(command, signal.SIGKILL)
        elif number in PASSED:
            # It went to the whole process group (a terminal's Ctrl-C), so CMD has its own copy, and the supervisor,
            # which cannot tell, is about to ask for another. Inside the PID namespace outsiders have number 0.
            if received.si_pid == 0 or not isolated:
                echoes.add(number)
        elif number - END in echoes:
            echoes.discard(number - END)
        else:
            os.kill(command, number - END)


def reap(command: int, channel: Channel) -> int | None:
    """Collect what has ended; CMD's exit code when it is among them."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if child == 0:
            return None
        if os.WIFSTOPPED(status):
            if child == command:
                channel.send({"stopped": os.WSTOPSIG(status)})
        elif child == command:
            return exit_code(status)


def end_leftovers() -> None:
    """Kill what CMD left behind: as its subreaper, we are the parent of every orphan."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for child in children.read().split():
                os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def run_command(orders: dict[str, Any], channel: Channel, keeper: int | None) -> int:
    """Init's whole life; returns the exit code. `keeper` is a pidfd, or None when this process is the keeper."""
    if keeper is None:
        prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
        channel.send({"ready": True})
    else:
        prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
        with isolate(orders, channel) as listener:
            channel.send({"ready": True, "home": orders["home"]}, listener.fileno())
    environment: dict[str, str] = channel.receive()["environment"]
    channel.stage = "privileges"
    if keeper is None:
        prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    else:
        drop(orders["user"], orders["system_calls"])
        prctl("parent death", PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([keeper], [], [], 0)[0]:
            os._exit(COULD_NOT_START)
    command = spawn(orders, environment, channel)
    if command is None:
        return COULD_NOT_START
    channel.send({"started": True})
    code = attend(command, channel, isolated=keeper is not None)
    if keeper is None:
        end_leftovers()
    return code


def guarded(channel: Channel, work: Callable[[], int]) -> int:
    """Run `work`; whatever goes wrong before CMD runs is told to the supervisor."""
    try:
        return work()
    except Exception as error:
        channel.fail(error)
        return COULD_NOT_START


# --- the keeper


def keep(orders: dict[str, Any], channel: Channel) -> int:
    """Make the PID namespace, start init in it, stay until it ends, clean up."""
    user = orders["user"]
    home = os.path.join(orders["home_base"], f"pointsman-home-{os.urandom(8).hex()}")
    orders["home"] = home
    channel.stage = "namespaces"
    call("unshare", libc.unshare, CLONE_NEWPID)
    channel.stage = "home"
    os.mkdir(home, 0o700)
    try:
        os.chown(home, user["uid"], user["gid"])
        keeper = os.pidfd_open(os.getpid())
        init = os.fork()
        if init == 0:
            os._exit(guarded(channel, lambda: run_command(orders, channel, keeper)))
        channel.socket.close()  # so that the supervisor sees init's end as the end of the conversation
        return oversee(init)
    finally:
        import shutil  # costs more than the rest of the start

        shutil.rmtree(home, ignore_errors=True)


def oversee(init: int) -> int:
    """Wait for init and pass on to it what the supervisor sends; returns its exit code."""
    while True:
        number = signal.sigwaitinfo(AWAITED).si_signo
        if number == END:
            os.kill(init, signal.SIGKILL)
        elif number > END:
            os.kill(init, number)
        elif number == signal.SIGCHLD:
            child, status = os.waitpid(init, os.WNOHANG)
            if child:
                return exit_code(status)


def main() -> int:
    """The launcher; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    channel = Channel(int(sys.argv[1]))
    orders = channel.receive()
    prctl("parent death", PR_SET_PDEATHSIG, END)
    if os.getppid() != orders["supervisor"]:
        return COULD_NOT_START
    if orders["isolation"] == "netns":
        return guarded(channel, lambda: keep(orders, channel))
    return guarded(channel, lambda: run_command(orders, channel, None))


if __name__ == "__main__":
    os._exit(main())

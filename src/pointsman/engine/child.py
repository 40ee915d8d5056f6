"""The engine's process: `python -P -m pointsman.engine.child`, orders as one JSON line on standard input.

It alone imports the llama.cpp binding. It answers with one JSON line on standard output, `{"ready": true}` or
`{"error": "…"}`, and lives until its standard input closes. What llama.cpp has to say goes to standard error.

It is not told what to do about anything: the supervisor starts it, watches it and finds the words for its faults.
"""

import ctypes
import json
import os
import resource
import signal
import stat
import sys
from contextlib import suppress
from typing import Any

# <linux/prctl.h>, <linux/sched.h>, <linux/capability.h>
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 2

_BATCH_TOKENS = 16
"""Prompt tokens per step. A cancelled prompt ends with the step it is in; on one core 64 read no faster than 16."""
_REQUESTS_AT_ONCE = 128
"""Threads of the HTTP server. One is taken by each request, waiting ones too, and by each idle connection; its own
default is 7 on two cores, and then the eighth client hears nothing. 128 cost 2 MiB."""
_ERRORS_ONLY = 1
_WITHOUT_PING_SECONDS = 30
"""A stream whose prompt is still being read carries a comment line this often, so it is never taken for dead."""


def confine() -> None:
    """Give up what the engine never needs: core dumps, privileges, the network, outliving its parent.

    A network namespace is a second wall (the engine listens on a unix socket only), so a system that refuses one
    is no reason to refuse service.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    _drop_capabilities(libc)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _prctl(libc, _PR_SET_DUMPABLE, 0)
    # Last, because the kernel forgets it when credentials change.
    _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGKILL)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Without these even root cannot read the memory of its parent, where the keys are.

    Reading files stays allowed: under sudo both the model and this very program may lie in a home directory that is
    closed to others.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: low halves, then high ones
    if libc.capget(header, held) != 0:
        return
    kept = held[1] & (1 << _CAP_DAC_READ_SEARCH)
    libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0))


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    libc.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)  # variadic: each at full width


def start_server(orders: dict[str, Any]) -> Any:
    """Load the model and listen. Raises RuntimeError for a file that llama.cpp cannot load."""
    import xllamacpp

    # The longest path of a unix socket is 108 bytes, less than some temporary directories.
    os.chdir(orders["directory"])
    os.umask(0o077)
    params = xllamacpp.CommonParams()
    params.model.path = orders["model_path"]
    params.model_alias = {orders["model_name"]}  # otherwise answers would carry the path of the file
    params.hostnames = [orders["socket_name"]]
    params.api_keys = [orders["key"]]
    params.ui = False
    params.n_ctx = orders["context_tokens"]
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    # With two at once, the tokens of one keep the server from noticing that the client of the other has gone: each
    # result that is delivered, to whomever, puts off that look by a second.
    params.n_parallel = 1
    params.n_threads_http = _REQUESTS_AT_ONCE
    params.sse_ping_interval = _WITHOUT_PING_SECONDS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = orders["threads"]
    params.cache_ram_mib = 0  # the default keeps 8 GiB of old prompts
    params.verbosity = _ERRORS_ONLY
    params.warmup = False
    server = xllamacpp.Server(params)
    os.chmod(orders["socket_name"], stat.S_IRUSR | stat.S_IWUSR)
    return server


def _why(error: Exception) -> str:
    if isinstance(error, ImportError) and error.name == "xllamacpp":
        return "llama.cpp is not installed; run: pip install 'pointsman[engine]'"
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Serve until standard input closes. Ends hard: llama.cpp crashes when it is unloaded while it generates."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the supervisor's business
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # native code that prints shall not answer in our place
    server = None
    try:
        confine()
        orders = json.loads(sys.stdin.readline())
        server = start_server(orders)
    except Exception as error:
        print(json.dumps({"error": _why(error)}), file=answers, flush=True)
        os._exit(1)
    with suppress(OSError):
        print(json.dumps({"ready": True}), file=answers, flush=True)
        sys.stdin.read()
    # `server` is still referred to here, and so was never unloaded.
    os._exit(0 if server is not None else 1)


if __name__ == "__main__":
    main()

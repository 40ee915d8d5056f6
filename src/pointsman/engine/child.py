"""The engine's process: `python -m pointsman.engine.child`, orders as one JSON line on standard input.

It alone imports the llama.cpp binding. It answers with one JSON line on standard output, `{"ready": true}` or
`{"error": "…"}`, and lives until its standard input closes.
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

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 1, 38, 4
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000

_BATCH = 64
"""Prompt tokens per step: a cancelled prompt stops within one, about a second on one slow core."""
_NO_MESSAGES = -1


def confine() -> None:
    """Give up what the engine never needs: core dumps, new privileges, the network, outliving its parent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Without a namespace of its own it still listens on its unix socket only; the namespace is a second wall.
    if libc.unshare(_CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def start_server(orders: dict[str, Any]) -> Any:
    """Load the model and listen. Raises RuntimeError for a file that llama.cpp cannot load."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = orders["model_path"]
    params.model_alias = {orders["model_name"]}  # otherwise answers would carry the path of the file
    params.hostnames = [orders["socket_path"]]
    params.api_keys = [orders["key"]]
    params.ui = False
    params.n_ctx = orders["context_tokens"]
    params.n_batch = params.n_ubatch = _BATCH
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = orders["threads"]
    params.cache_ram_mib = 0  # the default keeps 8 GiB of old prompts
    params.verbosity = _NO_MESSAGES
    params.warmup = False
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until standard input closes. Ends hard: llama.cpp crashes when it is unloaded while it generates."""
    orders = json.loads(sys.stdin.readline())
    confine()
    try:
        os.umask(0o077)
        server = start_server(orders)
        os.chmod(orders["socket_path"], stat.S_IRUSR | stat.S_IWUSR)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        os._exit(1)
    print(json.dumps({"ready": True}), flush=True)
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the supervisor's business
        sys.stdin.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    main()

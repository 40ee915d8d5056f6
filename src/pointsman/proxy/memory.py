"""A server's own memory: kept to its process, with the keys in it, and given back when it is free.

Not here: what a sandboxed command may see (`sandbox.visibility`), and where keys come from (`config`).
"""

import contextlib
import ctypes
import gc
import resource

_PR_SET_DUMPABLE = 4  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGE_BLOCK = 512 * 1024


def keep_memory_private() -> None:
    """No core dump, and no look into /proc/PID/mem or environ for others of the same user. Raises OSError.

    The kernel ends it at `exec`, so children are not concerned; of the core limit they inherit the soft value, which
    they may raise again.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    # The limit alone does not stop a core_pattern that pipes into a crash reporter; this does.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot make this process's memory private")


def give_back_memory() -> None:
    """Keep what large bodies took from staying with the process when they have gone.

    glibc raises its threshold with the first large block that is freed; the following ones then lie on the heap
    between small ones and pin it, 60 MiB after eight bodies of 10 MiB. Setting it, to any value, keeps it.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BLOCK)


def freeze_garbage() -> None:
    """Take what start-up made out of the collector's sight: a full collection then costs 0.01 ms, not 30."""
    gc.collect()
    gc.freeze()

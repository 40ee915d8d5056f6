"""Keeping a process's memory, and the keys in it, to that process.

Not here: what the sandboxed command may see (`visibility`), and where keys come from (`config`).
"""

import ctypes
import resource

_PR_SET_DUMPABLE = 4  # linux/prctl.h


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

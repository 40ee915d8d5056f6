"""What the sandbox may do: nothing that takes a privilege."""

import ctypes
import errno
import os
import struct
from typing import Any

from .kernel import (
    CAPABILITY_VERSION_3,
    CLONE_NEWUSER,
    KEYCTL_JOIN_SESSION_KEYRING,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECCOMP,
    SECCOMP_MODE_FILTER,
    call,
    libc,
    prctl,
)


def become(user: dict[str, Any]) -> None:
    """Root becomes the user."""
    os.setgroups([])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])


def become_again(user: dict[str, Any]) -> None:
    """The user, who is called root here, gets its number back, in a user namespace that owns nothing."""
    call("unshare", libc.unshare, CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user['uid']} 0 1"), ("gid_map", f"{user['gid']} 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def drop_bounding_set() -> None:
    """Take away what a program with file capabilities could get."""
    for capability in range(64):
        try:
            prctl("dropping a capability", PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # past the last one this kernel knows


def drop(system_calls: dict[str, Any]) -> None:
    """Leave every privilege, with no way back."""
    prctl("clearing ambient capabilities", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
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

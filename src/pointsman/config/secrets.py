"""Provider keys that lie in files, as Docker and Kubernetes mount them: where, and read safely, once per attempt.

Owns which file is a secret that may be used; keeps and logs nothing. A file is found by walking from its root with one
descriptor per step, so that nobody who swaps a link in between leads the walk out of the root.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pointsman.core.secret import Secret

LARGEST_SECRET = 8192
"""Bytes of a secret file; a credential of a provider record may be as long."""
_MOST_LINKS = 8  # Kubernetes needs two: the file's own, and ..data
_TRIES = 4
_AROUND = " \t\r\n"
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9]")


class SecretUnreadable(Exception):
    """A secret file cannot be used. Neither the text nor `reason` holds anything of what is in the file."""

    def __init__(self, path: str, reason: str, next_step: str) -> None:
        super().__init__(f"{path}: {reason}; {next_step}")
        self.reason = reason


class _Refused(Exception):
    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(reason)
        self.reason, self.next_step = reason, next_step


class _Moved(Exception):
    """What a link led to, or what was looked at, is no longer there: a rotation, or a link to nowhere."""


def secret_variable(provider_name: str) -> str:
    """The environment variable that may name a provider's secret file: `GROQ_API_KEY_FILE`."""
    return _NOT_IN_A_NAME.sub("_", provider_name.upper()) + "_API_KEY_FILE"


def secret_path(provider_name: str, secrets_dir: str | os.PathLike[str], environ: Mapping[str, str]) -> Path:
    """Where a provider's key lies: what `{PROVIDER}_API_KEY_FILE` names, else `{secrets_dir}/{provider}_api_key`.

    Its directory is the root for `read_secret`. A relative path starts at the working directory.
    """
    named = environ.get(secret_variable(provider_name), "").strip()
    return Path.cwd() / (named or Path(secrets_dir) / f"{provider_name}_api_key")


def read_secret(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Secret:
    """The secret in a file, without the space and line breaks around it; the root is the file's directory unless given.

    Links are followed as long as they are relative and stay below the root. Raises SecretUnreadable; never waits,
    whatever the path leads to. A file that is replaced by rename is read wholly old or wholly new.
    """
    text = os.fspath(path)
    directory, name = os.path.split(text)
    try:
        if root is not None and (base := os.fspath(root)) != directory:
            directory, name = base, os.path.relpath(text, base)
        return _secret(_read_below(directory or ".", name))
    except _Refused as refused:
        raise SecretUnreadable(text, refused.reason, refused.next_step) from None
    except OSError as error:
        reason = f"cannot be read ({(error.strerror or 'error').lower()})"
        raise SecretUnreadable(text, reason, "check the path and its rights") from None
    except ValueError:  # a NUL in the path
        raise SecretUnreadable("a secret's path", "is not a path", "check it") from None


def _read_below(root: str, name: str) -> bytes:
    for _ in range(_TRIES):
        try:
            base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _Refused("no such directory", "mount the secret there") from None
        try:
            return _walk(base, name)
        except _Moved:
            continue
        finally:
            os.close(base)
    raise _Refused("is a link to nowhere, or is replaced all the time", "check what it leads to")


def _walk(base: int, name: str) -> bytes:
    """Read the file below a directory. Raises _Moved, _Refused and OSError."""
    trail = [base]  # descriptors, the root first, so that `..` is a step back and never a look-up
    steps = _steps(name)
    links = 0
    try:
        while steps:
            step = steps.pop()
            if step == "..":
                if len(trail) == 1:
                    raise _Refused("leads out of its directory", "put the key itself there")
                os.close(trail.pop())
                continue
            try:
                mode = os.stat(step, dir_fd=trail[-1], follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    links += 1
                    steps += _link(step, trail[-1], links)
                elif not steps:
                    return _read_file(step, mode, trail[-1])
                elif stat.S_ISDIR(mode):
                    trail.append(os.open(step, _LOOK, dir_fd=trail[-1]))
                else:
                    raise _Refused("leads through what is no directory", "check the path")
            except FileNotFoundError:
                if links:
                    raise _Moved from None
                raise _Refused("no such file", "write the key into it, or mount it there") from None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it became a link after we looked
                    raise _Moved from None
                raise
        raise _Refused("is a directory", "name a file")
    finally:
        for descriptor in trail[1:]:
            os.close(descriptor)


def _steps(path: str) -> list[str]:
    """The steps of a path, the next one last."""
    return [step for step in reversed(path.split("/")) if step not in ("", ".")]


def _link(step: str, directory: int, links: int) -> list[str]:
    if links > _MOST_LINKS:
        raise _Refused("is a link through too many links", "put the key itself there")
    try:
        target = os.readlink(step, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # it was replaced by something that is no link
            raise _Moved from None
        raise
    if target.startswith("/"):
        raise _Refused("leads out of its directory", "make the link relative, or put the key itself there")
    return _steps(target)


def _read_file(name: str, mode: int, directory: int) -> bytes:
    if not stat.S_ISREG(mode):  # before it is opened: opening a device may do something
        raise _Refused("is a directory" if stat.S_ISDIR(mode) else "is not a regular file", "name a file")
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _Refused("is not a regular file", "name a file")
        if status.st_mode & _OTHERS_WRITE:
            raise _Refused("may be written by its group or by everybody", "chmod go-w it")
        if not status.st_size:  # what the kernel makes up, as in /proc, has no size either
            raise _Refused("is empty", "write the key into it")
        return os.read(descriptor, LARGEST_SECRET + 1)
    finally:
        os.close(descriptor)


def _secret(data: bytes) -> Secret:
    if len(data) > LARGEST_SECRET:
        raise _Refused(f"is larger than {LARGEST_SECRET // 1024} KiB", "check that it is the key")
    text = data.decode("latin-1").strip(_AROUND)
    if not text:
        raise _Refused("is empty", "write the key into it")
    if any(character in text for character in "\r\n\0"):
        raise _Refused("holds more than one line", "write the key alone into it")
    secret = Secret(text)
    if not secret.fits_a_header(LARGEST_SECRET):
        raise _Refused("holds a space or a character that no key has", "write the key alone into it, as plain text")
    return secret

"""Secret files on disk: what is read, what is refused and why, and that nothing of a secret is ever told."""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.config.secrets import (
    LARGEST_SECRET,
    SecretUnreadable,
    read_secret,
    secret_path,
    secret_variable,
)
from tests.support.descriptors import open_at

_KEY = "sk-canary-0123456789abcdef"


def _file(directory: Path, data: bytes, name: str = "groq_api_key") -> Path:
    path = directory / name
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("around", ["{}", "{}\n", "{}\r\n", "{} \n", "{}\r", "{}\t\n\n", "\n {}"])
def test_space_and_line_breaks_around_a_key_are_no_part_of_it(tmp_path: Path, around: str) -> None:
    assert read_secret(_file(tmp_path, around.format(_KEY).encode()), tmp_path).reveal() == _KEY


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \r\n\t\n", "is empty"),
        (b"a\nb", "holds more than one line"),
        (b"a\rb", "holds more than one line"),
        (b"a\0b", "holds more than one line"),
        (b"a\0", "holds more than one line"),
        (b"a b", "holds a space or a character that no key has"),
        ("schlüssel".encode(), "holds a space or a character that no key has"),
        (b"\xef\xbb\xbfkey", "holds a space or a character that no key has"),
        (b"k" * (LARGEST_SECRET + 1), "is larger than 8 KiB"),
    ],
)
def test_what_is_in_the_file_decides_whether_it_is_a_key(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(SecretUnreadable) as raised:
        read_secret(_file(tmp_path, data), tmp_path)
    assert raised.value.reason == reason


def test_a_key_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    assert read_secret(_file(tmp_path, b"k" * LARGEST_SECRET), tmp_path).reveal() == "k" * LARGEST_SECRET


def _missing(directory: Path) -> Path:
    return directory / "groq_api_key"


def _pipe(directory: Path) -> Path:
    os.mkfifo(directory / "pipe", 0o600)
    return directory / "pipe"


def _directory(directory: Path) -> Path:
    (directory / "inner").mkdir()
    return directory / "inner"


def _socket(directory: Path) -> Path:
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(directory)  # a socket's path is short
    try:
        listener.bind("s")
    finally:
        os.chdir(here)
        listener.close()
    return directory / "s"


def _mode(mode: int) -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        path = _file(directory, _KEY.encode())
        path.chmod(mode)
        return path

    return make


def _link(target: str) -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        _file(directory.parent, _KEY.encode(), "outside")
        (directory / "link").symlink_to(target)
        return directory / "link"

    return make


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_missing, "no such file"),
        (_pipe, "is not a regular file"),
        (_directory, "is a directory"),
        (_socket, "is not a regular file"),
        (lambda _: Path("/dev/zero"), "is not a regular file"),
        (lambda _: Path("/proc/self/environ"), "is empty"),
        (lambda directory: directory / "none" / "key", "no such directory"),
        (_mode(0o620), "may be written by its group or by everybody"),
        (_mode(0o602), "may be written by its group or by everybody"),
        (_link("../outside"), "leads out of its directory"),
        (_link("/proc/self/environ"), "leads out of its directory"),
        (_link("/dev/zero"), "leads out of its directory"),
        (_link("nowhere"), "is a link to nowhere, or is replaced all the time"),
        (_link("link"), "is a link through too many links"),
        (_link("."), "is a directory"),
    ],
)
def test_what_the_path_leads_to_decides_whether_it_is_opened(
    tmp_path: Path, make: Callable[[Path], Path], reason: str
) -> None:
    root = tmp_path / "secrets"
    root.mkdir()
    with pytest.raises(SecretUnreadable) as raised:
        read_secret(make(root))
    assert raised.value.reason == reason
    assert _KEY not in str(raised.value)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o444, 0o600, 0o644])
def test_a_file_that_others_may_only_read_is_taken(tmp_path: Path, mode: int) -> None:
    assert read_secret(_mode(mode)(tmp_path), tmp_path).reveal() == _KEY


def test_a_path_outside_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(SecretUnreadable, match="leads out of its directory"):
        read_secret(_file(tmp_path, _KEY.encode()), tmp_path / "root")


def _kubelet_volume(root: Path) -> Path:
    """As kubelet lays a volume out: the file is a link into ..data, which is a link to a directory."""
    _kubelet_version(root, "0", _KEY)
    (root / "groq_api_key").symlink_to("..data/groq_api_key")
    return root / "groq_api_key"


def _kubelet_version(root: Path, version: str, key: str) -> None:
    directory = root / f"..{version}"
    directory.mkdir()
    _file(directory, key.encode())
    (root / "..data_tmp").symlink_to(directory.name)
    (root / "..data_tmp").rename(root / "..data")


def test_links_of_a_kubernetes_volume_are_followed(tmp_path: Path) -> None:
    assert read_secret(_kubelet_volume(tmp_path), tmp_path).reveal() == _KEY


def test_a_link_may_go_up_as_long_as_it_stays_below_the_root(tmp_path: Path) -> None:
    _file(tmp_path, _KEY.encode())
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "link").symlink_to("../../a/../groq_api_key")
    assert read_secret(tmp_path / "a" / "b" / "link", tmp_path).reveal() == _KEY
    with pytest.raises(SecretUnreadable, match="leads out"):
        read_secret(tmp_path / "a" / "b" / "link", tmp_path / "a")


class _Readers:
    """Threads that read one secret again and again, and keep what they saw."""

    def __init__(self, path: Path, count: int = 3) -> None:
        self.seen: set[str] = set()
        self.refusals: set[str] = set()
        self.reads = 0
        self._path, self._done = path, threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(count)]

    def _read(self) -> None:
        while not self._done.is_set():
            try:
                self.seen.add(read_secret(self._path).reveal())
            except SecretUnreadable as error:
                self.refusals.add(error.reason)
            self.reads += 1

    def wait_for_one(self) -> None:
        """Until another read has ended: a reader that never gets to run in between sees every rotation there is."""
        before = self.reads
        while self.reads == before:
            time.sleep(0)

    def __enter__(self) -> "_Readers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


def test_a_thousand_replacements_by_rename_are_each_seen_wholly_old_or_wholly_new(tmp_path: Path) -> None:
    keys = [f"{i:04}" * 1000 for i in range(1001)]
    path = _file(tmp_path, keys[0].encode())
    with _Readers(path) as readers:
        for key in keys[1:]:
            _file(tmp_path, key.encode(), "new").rename(path)
    assert not readers.refusals
    assert readers.seen <= set(keys)
    assert read_secret(path).reveal() == keys[-1]


def test_rotations_of_a_kubernetes_volume_are_never_noticed_by_a_reader(tmp_path: Path) -> None:
    path = _kubelet_volume(tmp_path)
    with _Readers(path, 1) as readers:
        for i in range(1, 200):
            _kubelet_version(tmp_path, str(i), f"key-{i}")
            shutil.rmtree(tmp_path / f"..{i - 1}")
            readers.wait_for_one()
    assert readers.seen <= {_KEY, *(f"key-{i}" for i in range(200))}
    assert not readers.refusals


def test_a_link_swapped_in_for_a_file_never_leads_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "secrets"
    root.mkdir()
    _file(tmp_path, b"stolen", "outside")
    path = _file(root, _KEY.encode())
    with _Readers(path) as readers:
        for _ in range(500):
            (root / "link").symlink_to("../outside")
            (root / "link").rename(path)
            _file(root, _KEY.encode(), "new").rename(path)
    assert readers.seen <= {_KEY}
    assert readers.refusals <= {"leads out of its directory", "is a link to nowhere, or is replaced all the time"}


def test_no_descriptor_is_left_open_by_good_and_bad_secrets(tmp_path: Path) -> None:
    good = _kubelet_volume(tmp_path)
    (tmp_path / "bad").symlink_to("../out")
    for path in (good, tmp_path / "bad", tmp_path / "none", tmp_path):
        for _ in range(3):
            with contextlib.suppress(SecretUnreadable):
                read_secret(path, tmp_path)
    assert open_at(tmp_path) == []


def test_a_warm_secret_costs_less_than_sixty_microseconds_of_cpu(tmp_path: Path) -> None:
    path = str(_file(tmp_path, _KEY.encode()))

    def cost() -> float:
        start = time.thread_time()
        for _ in range(200):
            read_secret(path)
        return (time.thread_time() - start) / 200

    assert min(cost() for _ in range(10)) < 60e-6


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_it_is_a_key_for_a_header_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = _file(tmp_path_factory.getbasetemp(), data, "any")
    try:
        secret = read_secret(path)
    except SecretUnreadable:
        return
    assert secret.reveal().encode() == data.strip(b" \t\r\n")
    assert secret.fits_a_header(LARGEST_SECRET)


@given(st.text(max_size=60))
def test_whatever_a_path_is_it_is_read_or_unreadable(text: str) -> None:
    with contextlib.suppress(SecretUnreadable):
        read_secret(text)


def test_a_provider_has_a_file_in_the_directory_unless_a_variable_names_another(tmp_path: Path) -> None:
    assert secret_path("groq", tmp_path, {}) == tmp_path / "groq_api_key"
    assert secret_path("groq", tmp_path, {"GROQ_API_KEY_FILE": "/keys/g"}) == Path("/keys/g")
    assert secret_path("groq", tmp_path, {"GROQ_API_KEY_FILE": " "}) == tmp_path / "groq_api_key"
    assert secret_variable("my-Groq.2") == "MY_GROQ_2_API_KEY_FILE"

"""Encrypts single values, each bound to its place, so that rows cannot be swapped. Where the key lies: key_file."""

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pointsman.core.secret import Secret

_FORMAT = b"\x01"
_NONCE_BYTES = 12
_CHECK = Secret("pointsman")


class WrongKey(Exception):
    """What is encrypted was not encrypted with this key, or not for this place."""


class CredentialCipher:
    """AES-256-GCM under a key that is derived from the key file's. Random nonces: good for 2**32 values."""

    def __init__(self, key: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._key = key
        self._random_bytes = random_bytes
        self._for_purposes: dict[bytes, bytes] = {}
        self._aead = AESGCM(_derived(key, b"pointsman credentials"))

    def encrypt(self, value: Secret, *place: str) -> bytes:
        """What may lie in a database."""
        nonce = self._random_bytes(_NONCE_BYTES)
        return _FORMAT + nonce + self._aead.encrypt(nonce, value.reveal().encode(), _joined(place))

    def decrypt(self, data: bytes, *place: str) -> Secret:
        """Raises WrongKey."""
        nonce, text = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
        if data[:1] != _FORMAT or len(nonce) != _NONCE_BYTES:
            raise WrongKey
        try:
            return Secret(self._aead.decrypt(nonce, text, _joined(place)).decode())
        except InvalidTag:
            raise WrongKey from None

    def check_value(self) -> bytes:
        """What tells this key from another one."""
        return self.encrypt(_CHECK, "key check")

    def check(self, value: bytes) -> None:
        """Raises WrongKey when `value` is another key's."""
        self.decrypt(value, "key check")

    def derive(self, purpose: bytes) -> bytes:
        """32 bytes that are the same wherever the key file is; for one purpose, telling nothing of the others."""
        derived = self._for_purposes.get(purpose)
        if derived is None:
            derived = self._for_purposes[purpose] = _derived(self._key, b"pointsman derive\x00" + purpose)
        return derived


def _derived(key: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key)


def _joined(place: tuple[str, ...]) -> bytes:
    # Lengths in front, or ("ab", "c") would be the place ("a", "bc").
    parts = [part.encode() for part in place]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

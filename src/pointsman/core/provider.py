"""The operator's record of one provider, and what a request may change of it.

Limits are those of the provider records that OpenShell's clients were written against.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.profiles import LOCAL_GGUF
from pointsman.core.secret import Secret

BASE_IS_WHOLE = "BASE_IS_WHOLE"
"""Of a provider of a chain, `true`: requests' own `/v1` is not added to the base URL, whatever its path."""
KEY_FILE = "KEY_FILE"
"""Config entry that names the file with the key of a provider from a configuration file; no stored record has it."""
REDACTED = "REDACTED"
"""Stands for every credential in every answer but a bundle."""
LONGEST_NAME = 253
LONGEST_TYPE = 64
MOST_CREDENTIALS = 32
MOST_CONFIG_ENTRIES = 64
LONGEST_KEY = 256
LONGEST_VALUE = 8192

_T = TypeVar("_T")
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
"""What `check_name` takes, in the notation that JSON Schema shares."""
_NAME = re.compile(NAME_PATTERN)
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
_NAMES_A_SECRET = re.compile(r"(^|_)(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
NAME_RULE = "letters, digits, '.', '_' and '-', with a letter or digit first and last"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider record."""

    id: str
    account: str
    name: str
    type: str
    credentials: Mapping[str, Secret]
    config: Mapping[str, str]
    created_at: float
    """Seconds since the epoch."""
    updated_at: float
    from_file: bool = False
    """Whether the gateway's configuration file defines it, so that no command changes it. Never stored."""


@dataclass(frozen=True, slots=True)
class ProviderDraft:
    """What a client sends of a provider, to create one or to change one."""

    name: str = ""
    type: str = ""
    credentials: Mapping[str, Secret] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str, what: str = "name") -> None:
    """Raises InvalidRequest for what cannot name a record."""
    if len(name) > LONGEST_NAME:
        raise InvalidRequest(f"the {what} has {len(name)} characters; at most {LONGEST_NAME}")
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{name[:40]!r} cannot be the {what}; use {NAME_RULE}")


def names_a_secret(key: str) -> bool:
    """Whether the value of a config entry with this key would be a credential, shown to all who may see the record."""
    return _NAMES_A_SECRET.search(key) is not None


def check_draft(draft: ProviderDraft) -> None:
    """Raises InvalidRequest for what no record may hold; its name and type may be empty."""
    if draft.name:
        check_name(draft.name, "provider's name")
    if len(draft.type) > LONGEST_TYPE:
        raise InvalidRequest(f"the type has {len(draft.type)} characters; at most {LONGEST_TYPE}")
    if not draft.type.isprintable():
        raise InvalidRequest("the type holds a control character; write it as openai, anthropic or nvidia")
    if any(key.strip().upper() == KEY_FILE for key in draft.config):
        raise InvalidRequest(
            f"{KEY_FILE} belongs into the gateway's own configuration file: whoever sets it here could send any file "
            "that the gateway may read to a host of theirs"
        )
    for key, secret in draft.credentials.items():
        if secret.reveal() == REDACTED:
            raise InvalidRequest(
                f"credentials.{key[:LONGEST_KEY]}: {REDACTED} is the mask of what is stored; leave it out and it stays"
            )
    _check_map("credential", "credentials", MOST_CREDENTIALS, {k: v.reveal() for k, v in draft.credentials.items()})
    _check_map("config", "config entries", MOST_CONFIG_ENTRIES, draft.config)


def _check_map(what: str, plural: str, most: int, entries: Mapping[str, str]) -> None:
    if len(entries) > most:
        raise InvalidRequest(f"{len(entries)} {plural}; at most {most}")
    for key, value in entries.items():
        if not key.strip() or not key.isprintable():
            raise InvalidRequest(f"a {what} key is empty or not printable; write KEY=VALUE")
        if len(key) > LONGEST_KEY:
            raise InvalidRequest(f"the {what} key {key[:40]}… has {len(key)} characters; at most {LONGEST_KEY}")
        if len(value) > LONGEST_VALUE:
            raise InvalidRequest(f"the {what} {key} has {len(value)} characters; at most {LONGEST_VALUE}")
        if "\0" in value or (what == "config" and not value.isprintable()):
            # A credential may be a PEM file; whether it can be sent as a header is asked when it is used.
            raise InvalidRequest(f"the {what} {key} holds a line break or another control character")
        if what == "config" and value and names_a_secret(key):
            raise InvalidRequest(f"the config {key} is shown to everybody; give it as a credential")
        if what == "config" and _USER_INFO.match(value.strip()):
            raise InvalidRequest(f"the config {key} has a user name or password in its URL, where everybody sees it")


def check_new(draft: ProviderDraft) -> None:
    """Raises InvalidRequest for what cannot become a record. An empty name is the gateway's to choose."""
    check_draft(draft)
    if not draft.type.strip():
        raise InvalidRequest("provider.type is required; for example openai, anthropic, nvidia or openai_compatible")
    keyless = draft.type.strip().lower() == LOCAL_GGUF
    if not keyless and not any(value.reveal() for value in draft.credentials.values()):
        raise InvalidRequest("provider.credentials must hold at least one value; give one as KEY=VALUE")


def changed(provider: Provider, draft: ProviderDraft, now: float) -> Provider:
    """The record after an update: maps are merged, an empty value deletes its key, the type stays.

    Raises InvalidRequest when the type differs, or when what comes out breaks a limit.
    """
    check_draft(draft)
    if draft.type.strip() and draft.type.strip().lower() != provider.type.strip().lower():
        raise InvalidRequest(
            f"provider {provider.name} is of type {provider.type}, which cannot be changed; delete and create it again"
        )
    merged = replace(
        provider,
        credentials=_merged(provider.credentials, draft.credentials, lambda secret: bool(secret.reveal())),
        config=_merged(provider.config, draft.config, bool),
        updated_at=now,
    )
    check_new(ProviderDraft(merged.name, merged.type, merged.credentials, merged.config))
    return merged


def _merged(old: Mapping[str, _T], new: Mapping[str, _T], is_given: Callable[[_T], bool]) -> dict[str, _T]:
    return {key: value for key, value in {**old, **new}.items() if key not in new or is_given(value)}

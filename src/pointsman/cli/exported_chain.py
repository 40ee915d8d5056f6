"""What commands that verify an exported file share: the key it was made with, and the walk over its records."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import click

from pointsman.cli.audit_file import NoEntry
from pointsman.cli.show import told
from pointsman.core.chain import Link
from pointsman.core.chain_check import ChainCheck, Verification

_Link = TypeVar("_Link", bound=Link)

key_file_option = click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of a FILE: the gateway's credentials.key. Without FILE the gateway verifies what it has itself.",
)
exported_file = click.argument(
    "file", metavar="[FILE]", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)


def chain_key(path: Path, purpose: bytes) -> bytes:
    """What a gateway with this key file makes digests with. Raises ClickException."""
    from pointsman.store.credentials import CredentialCipher
    from pointsman.store.key_file import load_key_file
    from pointsman.store.problems import StoreRefused

    try:
        return CredentialCipher(load_key_file(path)).derive(purpose)
    except StoreRefused as error:
        raise click.ClickException(error.text) from None


def checked(file: Path, check: ChainCheck[_Link], records_in: Callable[[IO[bytes]], Iterator[_Link]]) -> Verification:
    """The findings of a whole file. Raises ClickException where it cannot be read."""
    try:
        with file.open("rb") as lines:
            for record in records_in(lines):
                check.add(record)
    except NoEntry as error:
        check.tell(str(error))
    except OSError as error:
        raise click.ClickException(f"{told(str(file))}: {(error.strerror or 'cannot be read').lower()}") from None
    check.end()
    return check.found(is_complete=True)

"""Lines of an exported audit record."""

import io

import pytest

from pointsman.cli.audit_file import LONGEST_LINE, NoEntry, entries_in, line_of
from pointsman.core.audit import AuditEntry

ENTRY = AuditEntry(1, 1000.1, "default", "admin", "key.create", "laptop", "", "{}", b"p" * 32, b"d" * 32)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_line_that_no_entry_can_have_is_not_read(more: int) -> None:
    line = line_of(ENTRY).encode()
    read = entries_in(io.BytesIO(line + b"\n" + line.ljust(LONGEST_LINE + more)))
    assert next(read) == ENTRY
    if more > 0:
        with pytest.raises(NoEntry, match="line 2 is longer than an entry can be"):
            next(read)
    else:
        assert next(read) == ENTRY

"""Counters that a gateway cannot write to when it starts: one line that says what to do, and no request uncounted."""

import os
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess, NotStarted


def test_a_quota_file_that_may_not_be_written_is_told_in_one_line_at_the_start(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data")
    gateway.start()
    gateway.end()
    (tmp_path / "data" / "quota.db").chmod(0o400)
    if os.geteuid() == 0:
        gateway.prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    with pytest.raises(NotStarted) as failure:
        gateway.start()
    gateway.close()
    text = str(failure.value)
    assert "\n" not in text
    assert (
        "quotas cannot be counted: the database file cannot be written; check that the gateway's user owns it" in text
    )
    assert "quota.db" in text

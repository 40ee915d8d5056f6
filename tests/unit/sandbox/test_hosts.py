"""The hosts file of a sandbox: the host's lines, and the door's name leading to loopback alone."""

import pytest

from pointsman.sandbox.hosts import DOOR_LINE, hosts_file

LOCAL = "127.0.0.1 localhost"


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("", [LOCAL]),
        ("127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n",
         ["127.0.0.1\tlocalhost", "::1 localhost ip6-localhost"]),
        ("# note\n\n127.0.0.1 localhost\n192.0.2.7 build # inference.local",
         ["# note", "", LOCAL, "192.0.2.7 build # inference.local"]),
        ("192.0.2.7 build", [LOCAL, "192.0.2.7 build"]),
        ("#127.0.0.1 localhost", [LOCAL, "#127.0.0.1 localhost"]),
        (f"{LOCAL}\n192.0.2.7 inference.local\n", [LOCAL]),
        (f"{LOCAL}\n::1 a Inference.LOCAL. b # c\n", [LOCAL, "::1 a b"]),
        (f"{LOCAL}\n192.0.2.7 my-inference.local\n", [LOCAL, "192.0.2.7 my-inference.local"]),
        (f"{LOCAL}\r\n", [LOCAL]),
    ],
)  # fmt: skip
def test_the_hosts_lines_are_kept_and_the_doors_name_leads_to_loopback_alone(host: str, kept: list[str]) -> None:
    assert hosts_file(host) == "".join(f"{line}\n" for line in (*kept, DOOR_LINE))

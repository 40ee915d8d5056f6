"""Networks of keys: how they are read, and which addresses are in them."""

import pytest

from pointsman.core.source_network import is_within, read_network

TEN, SIX = read_network("10.0.0.0/8"), read_network("2001:db8::/32")


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("9.255.255.255", False),
        ("11.0.0.0", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:11.0.0.0", False),
        ("::10.1.2.3", False),
        ("2001:db8::", True),
        ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", True),
        ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", False),
        ("2001:db9::", False),
        ("2001:db8::1%eth0", True),
        ("", False),
        ("/run/a.sock", False),
        ("10.0.0.1, 10.0.0.2", False),
        ("010.0.0.1", False),
    ],
)
def test_an_address_is_within_a_network_to_the_last_bit(address: str, inside: bool) -> None:
    assert is_within(address, (TEN, SIX)) is inside


def test_a_single_address_is_a_network_of_one() -> None:
    one = (read_network("127.0.0.1"), read_network("::1"))
    assert is_within("127.0.0.1", one)
    assert is_within("::1", one)
    assert not is_within("127.0.0.2", one)
    assert not is_within("::2", one)


def test_no_network_holds_nobody() -> None:
    assert not is_within("127.0.0.1", ())


@pytest.mark.parametrize("text", ["", "a", "10.0.0.0/33", "2001:db8::/129", "10.0.0.0/8/8", "10.0.0.256", "10/8", " "])
def test_what_is_no_network_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no network; write it as 10\.0\.0\.0/8"):
        read_network(text)


@pytest.mark.parametrize(("text", "meant"), [("10.0.0.1/8", "10.0.0.0/8"), ("2001:db8::1/32", "2001:db8::/32")])
def test_bits_behind_the_prefix_are_refused_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        read_network(text)

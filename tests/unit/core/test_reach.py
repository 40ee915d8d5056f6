"""Addresses that no operator's route may lead to."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.reach import DirectReach, refused_address

METADATA = "169.254.169.254"


def embedded(address: str) -> dict[str, str]:
    """An IPv4 address in every form that IPv6 has for it."""
    number = int(ipaddress.IPv4Address(address))
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    return {
        "v4-mapped": f"::ffff:{address}",
        "v4-mapped hexadecimal": f"::ffff:{high}:{low}",
        "v4-compatible": f"::{address}",
        "v4-translated": f"::ffff:0:{high}:{low}",
        "6to4": f"2002:{high}:{low}::1",
        "NAT64": f"64:ff9b::{high}:{low}",
        "local NAT64": f"64:ff9b:1::{high}:{low}",
        "Teredo server": f"2001:0:{high}:{low}:0:0:f7f7:f7f7",
        "Teredo client": f"2001:0:808:808::{(number >> 16) ^ 0xFFFF:x}:{(number & 0xFFFF) ^ 0xFFFF:x}",
    }


@pytest.mark.guarantee("U2")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("169.254.0.0", "link-local"),
        (METADATA, "metadata"),
        ("169.254.255.255", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("febf:ffff::1", "link-local"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("224.0.0.0", "multicast"),
        ("239.255.255.255", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
    ],
)
def test_link_local_metadata_and_group_addresses_are_refused_with_a_reason(address: str, reason: str) -> None:
    assert reason in (refused_address(address) or "")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "fd00::1",
        "0.0.0.1",
        "8.8.8.8",
        "2606:4700::1111",
        "169.253.255.255",
        "169.255.0.0",
        "fe7f:ffff::1",
        "fec0::1",
        "168.63.129.15",
        "168.63.129.17",
        "192.0.0.191",
        "192.0.0.193",
        "100.100.100.199",
        "100.100.100.201",
        "fd00:ec2::253",
        "fd00:ec2::255",
        "223.255.255.255",
        "240.0.0.1",
        "255.255.255.254",
    ],
)
def test_every_other_address_is_permitted_private_ones_included(address: str) -> None:
    assert refused_address(address) is None


@pytest.mark.guarantee("U2")
@pytest.mark.parametrize("form", embedded(METADATA))
@pytest.mark.parametrize("address", [METADATA, "168.63.129.16", "192.0.0.192", "100.100.100.200"])
def test_a_metadata_address_is_refused_in_every_ipv6_disguise(address: str, form: str) -> None:
    assert "metadata" in (refused_address(embedded(address)[form]) or "")


@pytest.mark.parametrize("form", [form for form in embedded(METADATA) if not form.startswith("Teredo")])
def test_a_harmless_address_in_an_ipv6_form_is_permitted(form: str) -> None:
    assert refused_address(embedded("10.1.2.3")[form]) is None


@given(st.ip_addresses())
def test_any_address_gets_an_answer_and_any_refused_ipv4_address_is_refused_when_mapped(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    answer = refused_address(str(address))
    assert answer is None or answer.startswith("is ")
    if address.version == 4:
        assert refused_address(f"::ffff:{address}") == answer


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "2130706433", "[::1]"])
def test_text_that_is_no_address_is_an_error_and_not_a_permission(text: str) -> None:
    with pytest.raises(ValueError):
        refused_address(text)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.0", "private"),
        ("10.255.255.255", "private"),
        ("172.16.0.0", "private"),
        ("172.31.255.255", "private"),
        ("192.168.255.255", "private"),
        ("fc00::", "private"),
        ("fdff::1%eth0", "private"),
        ("100.64.0.0", "shared"),
        ("100.127.255.255", "shared"),
        ("0.255.0.1", "this network"),
        ("240.0.0.1", "reserved"),
        ("169.254.1.1", "link-local"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2002:a00:1::", "private"),
    ],
)
def test_a_direct_models_address_is_public(address: str, reason: str) -> None:
    assert reason in (DirectReach().refused(address) or "")


@pytest.mark.parametrize(
    "address",
    [
        "9.255.255.255",
        "11.0.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "2606:4700::1111",
        "::ffff:93.184.215.14",
    ],
)
def test_a_direct_models_address_may_be_any_public_one(address: str) -> None:
    assert DirectReach().refused(address) is None


def test_an_operator_allows_networks_but_never_what_nobody_may_dial() -> None:
    networks = ("10.1.0.0/16", "169.254.0.0/16", "fe80::/10", "100.64.0.0/10", "::1/128", "0.0.0.0/0", "::/0")
    few = DirectReach(tuple(map(ipaddress.ip_network, networks[:5])))
    found = {
        text: few.refused(text) is None for text in ("10.1.0.0", "10.1.255.255", "10.0.255.255", "10.2.0.0", "::1")
    }
    assert found == {"10.1.0.0": True, "10.1.255.255": True, "10.0.255.255": False, "10.2.0.0": False, "::1": True}
    assert few.refused("::ffff:10.1.0.1") is None
    assert few.refused("::ffff:10.2.0.1") is not None
    everything = DirectReach(tuple(map(ipaddress.ip_network, networks)))
    assert everything.refused("127.0.0.1") is everything.refused("192.168.0.1") is None
    for never in ("169.254.169.254", "fe80::1", "100.100.100.200", "0.0.0.0", "224.0.0.1"):
        assert few.refused(never) is not None
        assert everything.refused(never) is not None

"""Networks that direct models may lead to though they are not public: read strictly. Pure."""

import ipaddress

from pointsman.core.reach import Network

_MOST = 64
"""Networks (ours): each is compared with every address that is looked at."""


def read_allowed_cidrs(text: str) -> tuple[Network, ...]:
    """Networks between commas. Raises ValueError with a reason that repeats nothing of the text."""
    parts = [each.strip() for each in text.split(",")]
    if len(parts) > _MOST:
        raise ValueError(f"has {len(parts)} networks; at most {_MOST} go in")
    try:
        found = tuple(ipaddress.ip_network(each) for each in parts if "/" in each)
    except ValueError:
        found = ()
    if len(found) != len(parts):
        raise ValueError("holds what is no network")
    return found

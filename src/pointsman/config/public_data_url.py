"""The address of the data listener as others reach it: checked. Pure; no name is ever looked up."""

import ipaddress

from pointsman.core.endpoint import Endpoint, parse_endpoint


def read_public_data_url(text: str) -> tuple[str, bool]:
    """The URL without a slash at its end, and whether others could read what is sent there.

    Raises ValueError with a reason that repeats nothing of the text.
    """
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        raise ValueError(str(error).partition(";")[0]) from None  # its next step is for the author of a route file
    if endpoint.scheme not in ("http", "https"):
        raise ValueError("is neither https:// nor http://")
    if not endpoint.path.endswith("/v1"):
        raise ValueError("does not end in /v1")
    return text.rstrip("/"), endpoint.scheme == "http" and not _is_loopback(endpoint)


def _is_loopback(endpoint: Endpoint) -> bool:
    try:
        return ipaddress.ip_address(endpoint.host).is_loopback
    except ValueError:
        return endpoint.host == "localhost"

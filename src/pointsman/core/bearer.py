"""How a token is written into an `authorization` field: read in one way by every listener. Pure."""


def bearer_of(value: str) -> str:
    """The token; empty for another scheme, or none. The scheme's case is free, and so are blanks around the token."""
    scheme, _, token = value.partition(" ")
    return token.strip(" \t") if scheme.lower() == "bearer" else ""

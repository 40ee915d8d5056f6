"""What a runner must know of a request's body before it passes it on: which model, and whether a stream is asked for.

The body itself goes to the model's server as it came.
"""

import msgspec

from pointsman.core.errors import MalformedRequest
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.wire.json_model import read_model, splice_model

_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Wish(msgspec.Struct):
    stream: bool | None = None


_WISH = msgspec.json.Decoder(_Wish)


def names_model(body: bytes, identifier: str) -> bool:
    """Whether every reader of the body finds this model in it and no other.

    A second `model` may win with the model's server, and servers written in Go read `MODEL` as `model`: either would
    reach a model that nobody approved.
    """
    try:
        if read_model(body) != identifier:
            return False
        splice_model(body, b'""', DEFAULT_LIMITS.json_keys)
        return all(key == "model" or key.lower() != "model" for key in _KEYS.decode(body))
    except (MalformedRequest, msgspec.DecodeError):
        return False


def asks_for_stream(body: bytes) -> bool:
    """Whether the answer is to be an event stream."""
    try:
        return bool(_WISH.decode(body).stream)
    except msgspec.DecodeError:  # the model's server will say what is wrong with it
        return False

"""Protobuf messages, and how they become values of `core`.

Whatever loads grpc imports this first: the library reads these variables once, when it is loaded.
"""

import os

# It writes to standard error by itself, in a form of its own, what the caller is told as a status anyway. Whoever has
# set this wants to see more.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Its traces show every header, tokens among them, and logs are kept and passed on.
os.environ.pop("GRPC_TRACE", None)

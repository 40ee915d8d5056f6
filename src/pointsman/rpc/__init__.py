"""Protobuf messages, and how they become values of `core`.

Import it before grpc, which reads its variables once, when it is loaded.
"""

import os

# The library writes to standard error by itself, in a form of its own, what the caller is told as a status anyway.
# Whoever has set it wants to see more.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

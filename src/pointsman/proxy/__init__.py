"""The data plane: asyncio shells that carry bytes between a client and an upstream.

Decisions live in `routing` and `wire`; what is here owns sockets, buffers and deadlines.
"""

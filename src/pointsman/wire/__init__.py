"""Bytes in, values out: HTTP/1.1, JSON splicing, event streams. No I/O, no clock, no logging.

Machines share their verbs: `receive(data)` takes bytes as they come, and any splitting of the same bytes gives
the same result.
"""

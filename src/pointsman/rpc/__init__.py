"""Protobuf messages, and how they become values of `core`."""

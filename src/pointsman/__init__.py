"""Pointsman: a self-hosted inference router for sandboxed agents."""

__version__ = "0.1.0"

"""Connections to upstreams: dialling, keeping, and one request at a time over each."""

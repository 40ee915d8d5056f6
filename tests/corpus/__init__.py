"""Runs a file of raw HTTP/1 requests, somebody's verdicts beside them, through a real proxy (`make corpus`)."""

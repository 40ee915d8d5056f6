"""One isolated command, and the proxy that is its only way out."""

"""The control plane over gRPC: the one place where its messages become operations."""

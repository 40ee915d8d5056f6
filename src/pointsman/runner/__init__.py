"""The host of local models: dials a gateway, and calls what its operator approved on this machine, nothing else."""

"""Request and reply between a gateway's processes."""

"""What performs a call: one module per kind of upstream. They do not know each other."""

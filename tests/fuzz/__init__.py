"""Properties of what reads a client's bytes, for Hypothesis in every run and for a coverage-guided campaign."""

"""Hypothesis profiles: `fast` in every run, `deep` by `make fuzz`."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("fast", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

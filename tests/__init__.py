"""The tests: C{python -m twisted.trial tests}, on machines that others use as well."""

from hypothesis import HealthCheck, settings

# How long an example takes says nothing there, and a slow moment is no failure.
settings.register_profile(
    "storagegate", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("storagegate")

"""Benchmarks of storagegate beside other servers: C{python -m bench --help}."""

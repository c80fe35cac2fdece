"""Servers in a few lines: what a script begins with."""

from storagegate.http.application import Application


def http() -> Application:
    """Make an HTTP application."""
    return Application()

"""The one place that looks for a reactor which nobody handed in."""

from typing import Any


def processReactor() -> Any:
    """Give the process's reactor. Imported late: importing it chooses one."""
    from twisted.internet import reactor

    return reactor

"""What concerns the whole process: the limits of the system, and where modules are looked for."""

import os
import resource
import sys


def tuneProcess() -> None:
    """Set the process up before anything listens; the one place for such settings."""
    # The usual soft limit of 1024 descriptors is below the connections that one listener takes.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are named by module, and the user's files come first.
    sys.path.insert(0, os.getcwd())

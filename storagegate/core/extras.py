"""
Optional packages, and the extras that install them.

A package that is absent, or lacks a system library, is not a defect: L{missingExtra} turns the
failed import into one line for the operator.
"""

from traceback import walk_tb

EXTRAS = {
    "hiredis": "cluster",
    "jinja2": "jinja2",
    "opentelemetry": "tracing",
    "psycopg": "cluster",
    "psycopg_binary": "cluster",
    "zstandard": "zstd",
}
"""The extra that installs each package."""


def installHint(name: str) -> str:
    """
    Return how to install a package.

    @param name: The full name of a module of the package.
    """
    return f"pip install '.[{EXTRAS[name.partition('.')[0]]}]' in a checkout of storagegate"


def missingExtra(error: ImportError) -> str | None:
    """
    Describe a failed import.

    @return: One line, or C{None} if the import concerns no package in L{EXTRAS}.
    """
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{name} is missing: {installHint(name)}"
    # An installed package that lacks a system library, such as psycopg without libpq.
    for frame, _ in walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in EXTRAS:
            reason = " ".join(str(error).split())
            return f"{package} cannot be used: {reason}: {installHint(package)}"
    return None

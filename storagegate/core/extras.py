"""
Packages that storagegate uses if they are installed, and the extras that install them.

An import of one that is absent, or that misses a library of the system, is no defect:
L{missingExtra} makes one line for the operator of it.
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
    return f"pip install 'storagegate[{EXTRAS[name.partition('.')[0]]}]'"


def missingExtra(error: ImportError) -> str | None:
    """
    Describe an import that failed.

    @return: One line, or L{None} if the import is of no package in L{EXTRAS}.
    """
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{name} is missing: {installHint(name)}"
    # A package that is there, and lacks a library, as psycopg without libpq.
    for frame, _ in walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in EXTRAS:
            reason = " ".join(str(error).split())
            return f"{package} cannot be used: {reason}: {installHint(package)}"
    return None

"""The pages of the console: static files whose names contain a hash of their content."""

import atexit
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from storagegate.console.assets import BUILT, SOURCES, writeAssets
from storagegate.http.application import Application
from storagegate.http.middleware.staticfiles import staticFiles


@cache
def pagesDirectory() -> str:
    """
    Return the directory of the pages.

    An installed package contains it. In a checkout, this process builds it from the sources, and
    removes it at exit.
    """
    if not SOURCES.is_dir():
        return str(BUILT)
    made = tempfile.TemporaryDirectory(prefix="storagegate-console-", ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    writeAssets(Path(made.name))
    return made.name


def servePages(app: Application) -> None:
    """Serve the pages; files with a hash in their names are immutable."""
    directory = pagesDirectory()
    hashed = staticFiles(
        os.path.join(directory, "assets"),
        maxAge="1y",
        immutable=True,
        index=False,
        precompressed=True,
        fallthrough=False,
    )
    app.use("/assets", hashed)

    def noCache(res: Any, path: str, stat: os.stat_result) -> None:
        res.header("Cache-Control", "no-cache")

    app.use("/", staticFiles(directory, setHeaders=noCache, precompressed=True))

"""The pages of the console: the files of C{static}, whose names have a hash of their content."""

import os
from typing import Any

from storagegate.http.application import Application
from storagegate.http.middleware.staticfiles import staticFiles

DIRECTORY = os.path.join(os.path.dirname(__file__), "static")


def servePages(app: Application) -> None:
    """Serve the pages: what has a hash in its name never changes."""
    hashed = staticFiles(
        os.path.join(DIRECTORY, "assets"),
        maxAge="1y",
        immutable=True,
        index=False,
        precompressed=True,
        fallthrough=False,
    )
    app.use("/assets", hashed)

    def noCache(res: Any, path: str, stat: os.stat_result) -> None:
        res.header("Cache-Control", "no-cache")

    app.use("/", staticFiles(DIRECTORY, setHeaders=noCache, precompressed=True))

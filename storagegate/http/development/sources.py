"""The source files of a program, and their changes."""

import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source

from storagegate.http.development.console import isInstalled
from storagegate.http.development.livereload import ChangeNotifier


class SourceWatcher:
    """
    Watches the files of the modules that a program has imported, except installed packages.

    One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._files = ChangeNotifier((".py",))

    def add(self, path: str) -> None:
        """Watch a file, or the modules below a directory."""
        self._files.add(path)

    def addImported(self) -> None:
        """Watch the files imported since the last call."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            # A script may have any name.
            if isinstance(file, str) and (file.endswith(".py") or name == "__main__"):
                path = os.path.abspath(file)
                if not isInstalled(path):
                    self.add(path)

    def changes(self) -> list[str]:
        """Return the files that have changed since the last call. Blocks while more change."""
        changed = sorted(self._files.settled())
        for path in changed:
            # Python compares the size and the modification time in seconds with the compiled file,
            # so it would run the old code of a module saved twice in a second.
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(path))
        return changed

"""
C{storagegate run}: serves an object of a Python module.

The command imports the module to find out what it listens on, and becomes the supervisor of the
workers, see L{storagegate.serving.supervisor}. Each worker imports the module again.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from threading import Thread
from typing import Any

from storagegate.cli.invocation import MISUSED, CommandError, Invocation
from storagegate.cli.targets import importTarget
from storagegate.core.options import parseDecimal
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.workers import IDLE_GRACE_SECONDS
from storagegate.server import serve
from storagegate.serving import currentWorker
from storagegate.serving.group import ServerGroup
from storagegate.serving.program import findProgram
from storagegate.serving.supervisor import MAX_WORKERS
from storagegate.serving.worker import ProgramWorker

_MAX_SECONDS = 3600

_CHECK_SECONDS = 0.25
"""Seconds between checks of files; a hundred files take half a millisecond."""

_PAGES_SECONDS = 0.1
"""The delay before open pages reload: by then this worker has stopped accepting."""


def readCount(text: str) -> int:
    """
    Read a number of workers or of seconds.

    @raise ValueError: If it is no number from 0 to 3600.
    """
    return parseDecimal(text, _MAX_SECONDS)


def run(invocation: Invocation) -> int:
    """Serve until a signal stops the process."""
    options = invocation.options
    flags = {
        "target": options.target,
        "addresses": {row.name: getattr(options, row.name) for row in listenerTransports()},
        "graceMs": options.graceSeconds * 1000,
        "reactor": options.reactor,
        "quiet": options.quiet,
        "reload": options.reload,
    }
    if options.workers > MAX_WORKERS:
        raise CommandError(f"--workers is at most {MAX_WORKERS}", MISUSED)
    if options.reload and not options.workers:
        raise CommandError("--reload needs a supervisor: --workers 1 or more", MISUSED)
    group = loadGroup(flags)
    if options.workers:
        found = findProgram(sys.orig_argv, sys.modules["__main__"])
        interpreter = [] if found is None else found[0]
        program = "function", "storagegate.cli.run:serveTarget", [json.dumps(flags)]
        group.supervise(
            (interpreter, program),
            options.workers,
            graceMs=flags["graceMs"],
            quiet=options.quiet,
            # Open pages must not be served by the old code.
            idleGraceSeconds=0.0 if options.reload else IDLE_GRACE_SECONDS,
        )
    group.run(graceMs=flags["graceMs"], quiet=options.quiet, reactor=options.reactor)
    return 0


def serveTarget(text: str) -> None:
    """
    Serve as a worker.

    @param text: The flags as JSON.
    @raise SystemExit: If the target cannot be served.
    """
    flags = json.loads(text)
    worker: ProgramWorker | None = currentWorker()
    try:
        group = loadGroup(flags)
    except CommandError as error:
        raise SystemExit(f"storagegate: {error}") from None
    watch = None
    if flags["reload"] and worker is not None and not worker.link.index:
        watch = lambda ports: watchSources(worker)  # noqa: E731
    group.run(
        graceMs=flags["graceMs"], quiet=flags["quiet"], reactor=flags["reactor"], started=watch
    )


def loadGroup(flags: Mapping[str, Any]) -> ServerGroup:
    """
    Import the target, and set the addresses of the flags.

    @param flags: C{target}, and C{addresses} by flag, of which an absent one is C{None}.
    @raise CommandError: If the target is no server, or an address is invalid.
    """
    found = importTarget(flags["target"])
    try:
        group = found if isinstance(found, ServerGroup) else serve(found)
    except TypeError:
        raise CommandError(_noServer(flags["target"], found), MISUSED) from None
    for name, address in flags["addresses"].items():
        if address is not None:
            try:
                group.relocate(name, address)
            except ValueError as error:
                raise CommandError(f"--{name}: {error}", MISUSED) from None
    return group


def _noServer(target: str, found: object) -> str:
    if callable(found):
        return f"{target} is a function: write {target}() to serve its result"
    return (
        f"{target} is a {type(found).__name__}: no application, gRPC server, gateway or value of"
        " serve()"
    )


def watchSources(worker: ProgramWorker) -> None:
    """
    Ask the supervisor for a reload whenever a source file changes.

    @param worker: The worker of this process, whose reactor is about to run.
    """
    from storagegate.http.development.sources import SourceWatcher
    from storagegate.net.endpoints import processReactor

    reactor = processReactor()
    watcher = SourceWatcher()
    watcher.addImported()
    changed: list[str] = []

    def report(files: list[str]) -> None:
        changed[:] = files
        worker.link.askSupervisor("reload", files)

    def watch() -> None:
        while True:
            time.sleep(_CHECK_SECONDS)
            watcher.addImported()
            files = watcher.changes()
            if files:
                for path in files:
                    # The new code may lack a file that this process does not import.
                    watcher.add(os.path.dirname(path))
                reactor.callFromThread(report, files)

    def retired() -> None:
        reloader = sys.modules.get("storagegate.http.development.reloader")
        if reloader is not None:
            hub = reloader.processReloader().hub
            reactor.callLater(_PAGES_SECONDS, hub.reload, changed)
            reactor.callLater(_PAGES_SECONDS, hub.endAll)

    worker.onRetired = retired
    Thread(target=watch, daemon=True).start()

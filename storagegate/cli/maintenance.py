"""The commands for the data of one machine: checks, recovery, backups and the clock."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from storagegate.cli.administration import catalogPath, refuseCluster
from storagegate.cli.daemonclient import apiOf, hasConsole, runningDaemon
from storagegate.cli.invocation import FAILED, MISUSED, CommandError, Invocation
from storagegate.cli.output import formatTime


def fsck(invocation: Invocation) -> int:
    """Check the data; exit code 1 if problems remain."""
    refuseCluster(invocation, "use storagegate cluster fsck")
    from storagegate.storage.commandresults import noting
    from storagegate.storage.embedded.fsck import check

    catalogPath(invocation)
    options, output = invocation.options, invocation.output
    with output.progress("fsck") as progress:
        problems = noting(
            invocation.data,
            "fsck",
            lambda: check(
                invocation.data, options.repair, options.verify, output.line, progress=progress
            ),
            verify=options.verify,
            repair=options.repair,
        )
    text = f"{problems} problems" if problems != 1 else "1 problem"
    output.result({"problems": problems}, [text])
    return FAILED if problems else 0


def restore(invocation: Invocation) -> int:
    """Restore a data directory or a cluster from a backup; exit code 1 if it has problems."""
    if invocation.options.to is None:
        from storagegate.cli.cluster import restore as restoreCluster

        return restoreCluster(invocation)
    from storagegate.storage.embedded.restore import restore

    options, output = invocation.options, invocation.output
    with _ended(), output.progress("restore") as progress:
        problems = restore(
            options.source,
            options.to,
            options.verify,
            output.line,
            isPartial=options.partial,
            progress=progress,
        )
    output.result({"to": options.to, "problems": problems})
    return FAILED if problems else 0


_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _ended() -> Iterator[None]:
    """
    Make SIGTERM and the end of the terminal end the command as Ctrl-C does, so that the incomplete
    copy is removed.
    """
    # With nohup, SIGHUP is ignored.
    handled = [each for each in _ENDS if signal.getsignal(each) is not signal.SIG_IGN]
    before = [
        (each, signal.signal(each, lambda number, frame: sys.exit(128 + number)))
        for each in handled
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def recover(invocation: Invocation) -> int:
    """Copy the blobs that no catalog references; exit code 1 if a copy failed."""
    refuseCluster(invocation, "restore PostgreSQL from its backup")
    from storagegate.storage.embedded.orphans import recover

    to = invocation.options.to
    failed = recover(invocation.data, to, invocation.output.line)
    invocation.output.result({"to": to, "problems": failed})
    return FAILED if failed else 0


def confirmClock(invocation: Invocation) -> int:
    """
    Trust the clock of the machine: by the API of the daemon, or in the catalog if no daemon runs
    or the daemon has no console.
    """
    configuration = invocation.configuration
    daemon = None if invocation.isRemote else runningDaemon(configuration)
    if invocation.isRemote or hasConsole(configuration):
        found = apiOf(invocation).request("POST", "clock/confirm")
        state = "removals by date resume" if found["wasStepped"] else "it was already trusted"
    else:
        refuseCluster(invocation, "use --url with the admin listener of a node")
        from storagegate.storage.clock import confirmIn
        from storagegate.storage.embedded.keyadmin import openForTools

        with closing(openForTools(catalogPath(invocation))) as catalog:
            found = {"wasStepped": None, "nowMs": confirmIn(catalog).wallMs}
        state = "the daemon trusts it from its next start"
        if daemon is not None:
            state = "removals by date resume within two minutes"
    invocation.output.result(found, [f"the clock is {formatTime(found['nowMs'])}: {state}"])
    return 0


def backup(invocation: Invocation) -> int:
    """Copy the data; exit code 1 if the copy has problems."""
    if invocation.configuration.cluster is not None:
        from storagegate.cli.cluster import backup as backupCluster

        return backupCluster(invocation)
    if invocation.options.blobsWith is not None:
        raise CommandError("--blobs-with is for a cluster", MISUSED)
    from storagegate.cli.masterkeys import backUpKeys, refuseVaultKeys
    from storagegate.storage.commandresults import noting
    from storagegate.storage.embedded.backup import backup

    refuseVaultKeys(invocation)
    catalogPath(invocation)
    options, output = invocation.options, invocation.output
    with _ended(), output.progress("backup") as progress:
        problems = noting(
            invocation.data,
            "backup",
            lambda: backup(
                invocation.data, options.to, options.verify, output.line, progress=progress
            ),
            verify=options.verify,
            to=os.path.abspath(options.to),
        )
    backUpKeys(invocation, options.to)
    output.result({"to": options.to, "problems": problems})
    return FAILED if problems else 0

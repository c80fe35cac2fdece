"""
A worker: a separate process that serves on the sockets of its supervisor.

C{python -m storagegate.daemon.worker} expects a socket of its supervisor at descriptor 3, see
L{storagegate.net.ipc}; only a supervisor can start it.
"""

from contextlib import suppress
from typing import Any

from attrs import evolve
from msgspec.structs import replace

from storagegate.daemon.components import Components
from storagegate.daemon.config import Configuration, restore
from storagegate.daemon.daemon import Daemon
from storagegate.daemon.service import ProcessSetup
from storagegate.net.endpoints import chooseReactor
from storagegate.net.ipc import WorkerIPC, WorkerSetup, adopt, encode, receiveSetup
from storagegate.net.process import oneLine, setParentDeathSignal
from storagegate.objects.issuedkeys import KeyPair


def _readConfiguration(setup: WorkerSetup) -> Configuration:
    """Restore the configuration that a supervisor has sent."""
    configuration = restore(setup.options)
    listeners = configuration.listeners.at(setup.places)
    root = configuration.s3.root
    if "root" in setup.options:
        root = KeyPair(*setup.options["root"])
    return evolve(configuration, listeners=listeners, s3=replace(configuration.s3, root=root))


def main() -> None:
    """Serve until the supervisor stops this worker or ends."""
    control, setup = receiveSetup()
    reactor = chooseReactor(setup.options["values"]["reactor"])
    try:
        daemon, link = _start(setup, reactor)
    except SystemExit as refused:
        reason = oneLine(str(refused.code)).removeprefix("storagegate: ")
        # The supervisor may have ended.
        with suppress(OSError):
            control.sendall(encode({"kind": "failed", "reason": reason}))
        raise SystemExit(1) from None
    control.setblocking(False)
    adopt(reactor, control, link.control)
    # From now on the end of the control socket shuts this process down gracefully.
    reactor.callWhenRunning(setParentDeathSignal, 0)
    reactor.callWhenRunning(link.ready)
    reactor.addSystemEventTrigger("before", "shutdown", daemon.stopService)
    reactor.run()


def _start(setup: WorkerSetup, reactor: Any) -> tuple[Daemon, WorkerIPC]:
    """
    Start the daemon's components.

    @raise SystemExit: If a component cannot be started.
    """
    link = WorkerIPC(setup)
    configuration = _readConfiguration(setup)
    parts = Components(reactor, link)
    parts.logs.takeOver(setup.options["log"], configuration, reactor, setup.index)
    # A reload replaces this process with another one.
    flags = setup.options["flags"]
    process = ProcessSetup(configuration, lambda: configuration, reactor, parts, flags=flags)
    daemon = Daemon(process, link)
    link.retired = daemon.drainAndExit
    link.stopped = daemon.stopNow
    daemon.privilegedStartService()
    daemon.startService()
    return daemon, link


if __name__ == "__main__":
    main()

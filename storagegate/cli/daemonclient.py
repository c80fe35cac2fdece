"""
The daemon of a command: the one that C{--url} or C{--profile} names, or the local daemon of the
data directory, whose listeners are in a file there.

Requests to a local daemon carry the root pair, so they go only to a verified process: the process
has the data directory open, and no other process is seen to hold its port. With TLS, its listener
must present one of its own certificates.
"""

import os
from urllib.parse import urlsplit

from storagegate.cli.awssettings import S3Credentials
from storagegate.cli.client import ConsoleClient
from storagegate.cli.doctor.network import daemonOf, isHeldByOther, listenerAddresses
from storagegate.cli.invocation import (
    MISUSED,
    PAIR_VARIABLES,
    UNREACHED,
    CommandError,
    Invocation,
)
from storagegate.daemon.config import Configuration
from storagegate.daemon.listenerfile import RunningDaemon, readListeners
from storagegate.daemon.rootcredentials import CredentialsError, load
from storagegate.daemon.service import ROOT_FILE
from storagegate.net.endpoints import ENCRYPTED
from storagegate.objects.issuedkeys import KeyPair


def apiOf(invocation: Invocation) -> ConsoleClient:
    """
    Make a client of the daemon's console.

    @raise CommandError: No daemon runs, its console is unreachable this way, or there is no key
        pair.
    """
    if invocation.isRemote:
        return _remote(invocation)
    configuration = invocation.configuration
    pid = runningDaemon(configuration)
    if pid is None:
        raise CommandError(f"no daemon runs on {invocation.data}", UNREACHED)
    running = readListeners(configuration.store.directory, pid)
    pinned: tuple[str, ...] = ()
    if running is None:
        # The daemon could not write the file.
        url, port = _configuredConsole(configuration)
    else:
        url, port, pinned = _runningConsole(running)
    if isHeldByOther(port, pid):
        raise CommandError(f"another process listens on port {port}, not the daemon", UNREACHED)
    root = _rootPair(configuration)
    return ConsoleClient(url, S3Credentials(root.accessKey, root.secretKey), pinned=pinned)


def localListeners(configuration: Configuration) -> RunningDaemon | None:
    """Return the listeners of the daemon on the data directory; L{None} if they are unknown."""
    pid = runningDaemon(configuration)
    return None if pid is None else readListeners(configuration.store.directory, pid)


def hasConsole(configuration: Configuration) -> bool:
    """Return whether a daemon runs on the data directory and serves the console."""
    if runningDaemon(configuration) is None:
        return False
    running = localListeners(configuration)
    return bool(configuration.values["console"]) if running is None else running.hasConsole


def _remote(invocation: Invocation) -> ConsoleClient:
    profile = invocation.profile
    url = invocation.options.url or profile.get("url")
    if not url:
        raise CommandError("the profile has no URL of a console: name it by --url", MISUSED)
    credentials = invocation.credentials
    if credentials is None:
        names = " and ".join(PAIR_VARIABLES)
        raise CommandError(f"no key pair: set {names} or AWS_PROFILE, or use --profile", MISUSED)
    authorities = invocation.options.cacert or profile.get("caFile") or ""
    return ConsoleClient(url, credentials, authorities)


def runningDaemon(configuration: Configuration) -> int | None:
    """Return the process that has the data directory open; L{None} for none."""
    return daemonOf(os.path.abspath(configuration.store.directory))


_NO_CONSOLE = "the daemon has no console: console is false"


def _runningConsole(running: RunningDaemon) -> tuple[str, int, tuple[str, ...]]:
    """
    Return the URL of the admin listener of a running daemon, its port and its certificates.

    @raise CommandError: The daemon has no console, or its listener has no URL.
    """
    if not running.hasConsole:
        raise CommandError(_NO_CONSOLE, UNREACHED)
    admin = running.listeners.get("admin")
    if admin is None:
        raise CommandError("the daemon has no admin listener", UNREACHED)
    port = None if admin.url is None else urlsplit(admin.url).port
    if admin.url is None or port is None:
        raise CommandError(
            f"the admin listener is {admin.address}: name its URL by --url", UNREACHED
        )
    return admin.url, port, admin.certificates


def _configuredConsole(configuration: Configuration) -> tuple[str, int]:
    """
    Return the URL of the admin listener, and its port.

    @raise CommandError: There is no such URL, or it cannot be derived.
    """
    if not configuration.values["console"]:
        raise CommandError(_NO_CONSOLE, UNREACHED)
    found = [each for each in listenerAddresses(configuration) if each.name == "admin"]
    if not found:
        raise CommandError("the daemon has no admin listener", UNREACHED)
    [admin] = found
    isPlain = not admin.description.startswith(ENCRYPTED)
    if not admin.port or not isPlain:
        raise CommandError(
            f"the admin listener is {admin.description}: name its URL by --url", UNREACHED
        )
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(admin.host, admin.host)
    return f"http://[{host}]:{admin.port}" if ":" in host else f"http://{host}:{admin.port}", (
        admin.port
    )


def _rootPair(configuration: Configuration) -> KeyPair:
    """
    Return the root pair.

    @raise CommandError: There is no readable root pair.
    """
    pair = configuration.s3.root
    try:
        pair = pair or load(os.path.join(configuration.store.directory, ROOT_FILE))
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    if pair is None and configuration.cluster is not None:
        from contextlib import closing

        from storagegate.storage.cluster.admin import openForTools

        with closing(openForTools(configuration.cluster.catalog)) as admin:
            found = admin.root()
        pair = None if found is None else KeyPair(*found)
    if pair is None:
        raise CommandError(f"{configuration.store.directory} has no root key pair")
    return pair

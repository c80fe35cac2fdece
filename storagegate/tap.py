"""The C{twistd} plugin: the flags of C{twistd storagegate}, and the service that they configure."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from storagegate.daemon.components import Components
from storagegate.daemon.config import CONFIG_VARIABLE, ConfigurationError, load, loadAgain
from storagegate.daemon.configkeys import KEYS, Key
from storagegate.daemon.daemon import Daemon
from storagegate.daemon.process import startError
from storagegate.daemon.service import ProcessSetup
from storagegate.net.endpoints import chooseReactor
from storagegate.version import __version__


def _describe(key: Key) -> str:
    default = f" [{key.default}]" if key.default else ""
    return f"{key.meaning} ({key.argument}){default}"


class Options(usage.Options):
    """
    The flags, generated from the table of configuration keys.

    An absent flag is C{None}: a default here would override the variables and the file.
    """

    synopsis = "[options]"
    longdesc = (
        "A durable S3 server. Each flag is also a key of the configuration file and a variable"
        " STORAGEGATE_<NAME>. Flags override variables, and variables override the file."
    )
    optParameters = [
        ["config", None, None, f"a TOML configuration file (FILE; or {CONFIG_VARIABLE})"],
        *(
            [key.name, None, None, _describe(key)]
            for key in KEYS
            if key.argument and key.name != "service"
        ),
    ]

    def opt_service(self, name: str) -> None:
        """a service to serve (MODULE:NAME, UserService or Storage); may be repeated"""
        self.setdefault("service", []).append(name)

    def opt_version(self) -> None:
        """print the version and exit"""
        print(f"storagegate {__version__}")
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """
        Read the command line.

        @raise SystemExit: If a flag is unknown; the text is one line. C{twistd} would print its
            whole help, which hides the reason.
        """
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            raise startError(str(error)) from error


def makeService(options: Options, reactor: Any = None) -> IService:
    """
    Make the daemon from the flags, the environment variables and the file.

    @raise SystemExit: If the configuration is invalid; the text is one line for each mistake.
    """
    flags = dict(options)
    path = flags.get("config") or os.environ.get(CONFIG_VARIABLE)
    if path:
        # twistd changes its directory before it starts a service, and SIGHUP reads the file again.
        flags["config"] = os.path.abspath(path)
    try:
        configuration = load(flags, os.environ)
    except ConfigurationError as error:
        from storagegate.daemon.configcheck import everyError

        # Also names the mistakes in services and tables, which a valid configuration checks later.
        errors = dict.fromkeys((*error.errors, *everyError(flags, os.environ)))
        raise startError(ConfigurationError(*errors)) from error
    if reactor is None:
        # A supervisor runs no services.
        reactor = chooseReactor(configuration.reactor if configuration.workers == 1 else None)
    parts = Components(reactor)
    reload = partial(loadAgain, flags, os.environ)
    setup = ProcessSetup(configuration, reload, reactor, parts, options.parent, flags)
    if configuration.workers > 1:
        from storagegate.daemon.supervisor import Supervisor

        return Supervisor(setup)
    return Daemon(setup)

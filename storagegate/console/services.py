"""The services of the daemon that the console uses."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from storagegate.core.ratelimit import RateStoreMaker
from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.issuedkeys import KeyPair
from storagegate.objects.service import ObjectService
from storagegate.storage.consolerecords import IConsoleRecords
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.console.monitor import ConsoleMonitor
    from storagegate.net.ipc import WorkerIPC
    from storagegate.telemetry.metrics import MetricsRegistry


class IDaemon(Protocol):
    """The daemon's interface for the console. Must run in the reactor thread."""

    def readiness(self) -> Any:
        """Return the state of each component: L{storagegate.daemon.health.Readiness}."""

    async def reload(self) -> Mapping[str, Any]:
        """
        Reload the configuration in all processes, as SIGHUP does.

        @return: C{applied} and C{needRestart}, lists of keys; C{error}, empty unless the reload was
            refused; C{replacing}, the number of workers being replaced.
        """

    async def doctor(self) -> list[Mapping[str, str]]:
        """
        Run the doctor.

        @return: Findings: C{level, check, text}.
        @raise ServiceError: C{RATE_LIMITED}: the doctor is already running. C{UNAVAILABLE}: it
            returned no findings.
        """

    def configuration(self) -> list[Mapping[str, Any]]:
        """Return each key of the configuration: C{key, value, origin, default, meaning, sighup}."""

    def listeners(self) -> Mapping[str, str]:
        """Return the addresses of the open listeners by name."""

    @property
    def gateway(self) -> Any:
        """The gateway service; L{None} without one."""

    @property
    def dataDirectory(self) -> str:
        """The data directory, as an absolute path."""


@define(eq=False)
class ConsoleOptions:
    """
    The options of the console.

    @ivar url: The URL of the console in browsers, with a trailing slash; empty for the listener's.
    @ivar s3Url: The URL of S3 for clients; empty for the listener's.
    @ivar allowsClearText: Whether signing in is allowed over HTTP from another machine.
    @ivar trustedProxies: The proxies whose C{X-Forwarded-For} names clients, as in the gateway's
        table.
    @ivar signIn: The table C{signIn}: see L{storagegate.console.issueroptions}.
    """

    url: str = ""
    s3Url: str = ""
    allowsClearText: bool = False
    trustedProxies: Any = False
    signIn: Mapping[str, Any] = field(factory=dict)


@define(eq=False)
class ConsoleServices:
    """
    The services that handlers use.

    @ivar accounts: The issued keys and the root pair.
    @ivar region: The region of presigned URLs.
    @ivar meters: The metrics of this process.
    @ivar link: The connection of a worker to the other workers; L{None} without workers.
    @ivar monitor: The requests and metrics of all processes.
    @ivar records: Stores the sessions of the console, for all processes and nodes.
    @ivar now: Returns seconds since the epoch.
    @ivar makeRates: Makes rate limit stores that all processes share.
    @ivar presign: Makes a presigned URL from the key, the region, the URL, parameters, the time now
        and the time of validity, both in seconds.
    @ivar sealKey: Seals the state of sign-ins: 32 bytes, the same on all nodes.
    """

    reactor: Any
    store: ObjectStore
    objects: ObjectService
    accounts: AccessKeyStore
    region: str
    meters: "MetricsRegistry"
    link: "WorkerIPC | None"
    monitor: "ConsoleMonitor"
    daemon: IDaemon
    options: ConsoleOptions
    records: IConsoleRecords
    now: Callable[[], float]
    makeRates: RateStoreMaker
    presign: Callable[[KeyPair, str, str, Mapping[str, str], float, int], str]
    sealKey: bytes = field(repr=False)
    # State that handlers keep for the life of the console, by name: jobs, streams, history.
    kept: dict[str, Any] = field(factory=dict, init=False)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the state with a name; create it on first use."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

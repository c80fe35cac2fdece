"""What the console works with: the parts of the daemon."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from storagegate.core.ratelimit import RateStoreMaker
from storagegate.s3.accounts import AccessKeyStore
from storagegate.s3.multipart import MultipartService
from storagegate.s3.objects import ObjectService
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.console.monitor import ConsoleMonitor
    from storagegate.net.ipc import WorkerIPC
    from storagegate.telemetry.metrics import MetricsRegistry


class IDaemon(Protocol):
    """What the console asks the daemon for. Reactor thread."""

    def readiness(self) -> Any:
        """Return the state of each part: L{storagegate.daemon.health.Readiness}."""

    async def reload(self) -> Mapping[str, Any]:
        """
        Read the configuration again, as SIGHUP does, in all processes.

        @return: C{applied} and C{needRestart}, lists of keys; C{error}, empty unless it was
            refused; C{replacing}, how many workers are being replaced.
        """

    async def doctor(self) -> list[Mapping[str, str]]:
        """
        Run the doctor.

        @return: Findings: C{level, check, text}.
        @raise ServiceError: C{RATE_LIMITED}: It is at work. C{UNAVAILABLE}: It has no findings.
        """

    def configuration(self) -> list[Mapping[str, Any]]:
        """Return each key of the configuration: C{key, value, origin, default, meaning, sighup}."""

    def listeners(self) -> Mapping[str, str]:
        """Return the address of each listener that is open, by its name."""

    @property
    def gateway(self) -> Any:
        """The service of the gateway; L{None} without one."""

    @property
    def dataDirectory(self) -> str:
        """An absolute path."""


@define(eq=False)
class ConsoleOptions:
    """
    The options of the configuration.

    @ivar url: Where browsers find the console, with a slash at the end; empty: at the listener.
    @ivar s3Url: Where clients find S3; empty: at the listener.
    @ivar allowsClearText: Whether signing in is allowed over HTTP from another machine.
    @ivar trustedProxies: Those whose C{X-Forwarded-For} names clients, as in the gateway's table.
    """

    url: str = ""
    s3Url: str = ""
    allowsClearText: bool = False
    trustedProxies: Any = False


@define(eq=False)
class ConsoleServices:
    """
    The parts.

    @ivar accounts: The keys, and the root pair.
    @ivar region: That of presigned URLs.
    @ivar meters: The metrics of this process.
    @ivar link: The connection of a worker to the others; L{None} without workers.
    @ivar monitor: The requests and figures of all processes.
    @ivar now: Seconds since the epoch.
    @ivar makeRates: Makes what all processes count together.
    """

    reactor: Any
    store: ObjectStore
    objects: ObjectService
    multipart: MultipartService
    accounts: AccessKeyStore
    region: str
    meters: "MetricsRegistry"
    link: "WorkerIPC | None"
    monitor: "ConsoleMonitor"
    daemon: IDaemon
    options: ConsoleOptions
    now: Callable[[], float]
    makeRates: RateStoreMaker
    # What handlers keep for as long as the console lives, by name: jobs, streams, history.
    kept: dict[str, Any] = field(factory=dict, init=False)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is kept under a name, made with its first use."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

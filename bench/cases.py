"""
The values of the benchmarks: a case, the servers it compares, the load, and the asked figures.

A case is complete in itself: the driver only reads these values. Each folder defines its cases in
C{cases.py}, how its servers and their data are made in C{recipe.py}, and the servers that it is
compared with in C{peers.py}.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

if TYPE_CHECKING:
    from bench.processes import Running

OURS = "storagegate"

SERVER_CORE = "0"
CLIENT_CORE = "1"
BOTH_CORES = "0,1"

Started = Callable[[int], None]
"""Receives the process id of a load program as soon as it runs."""


class MeasureError(Exception):
    """A server does not do what a measurement needs."""


@frozen
class Seen:
    """
    The report of a load program.

    @ivar requests: Requests, calls or messages that were answered.
    @ivar received: Bytes of the answers.
    @ivar clientSeconds: CPU time of the load program.
    @ivar serverSeconds: CPU time of the measured side, if the load program itself is that side.
    @ivar doubts: Reasons to mark the figure; it still counts.
    @ivar fault: The reason why the measurement is invalid; empty if it is valid.
    """

    requests: float
    seconds: float
    received: float = 0
    p50Ms: float = 0
    p99Ms: float = 0
    clientSeconds: float = 0
    serverSeconds: float | None = None
    doubts: tuple[str, ...] = ()
    fault: str = ""


@contextlib.contextmanager
def nothingBeside() -> Iterator[None]:
    """Run nothing beside a load."""
    yield


@frozen
class Load:
    """
    A load, ready to run against a server whose answers have been checked.

    @ivar run: Runs it for a number of seconds.
    @ivar beside: Makes the context of the run: other work that lasts as long. The context may give
        the bytes by which the memory of the server grew.
    @ivar finish: Cleans up.
    """

    run: Callable[[float, Started | None], Seen]
    beside: Callable[[], AbstractContextManager[float | None]] = nothingBeside
    finish: Callable[[Seen], None] = lambda seen: None


def _askHTTP(running: "Running") -> object:
    return running.exchange("GET", "/")


@frozen(eq=False)
class Server:
    """
    A server to start: one of ours, or a peer.

    @ivar command: Returns the command line; L{None} if the load program is the measured side.
    @ivar version: Returns its version.
    @ivar prepare: Makes the files and data that it needs, before it starts.
    @ivar ask: Sends one request of any kind; raises an C{OSError} until the server answers.
    @ivar behind: Returns the ids of processes elsewhere that work for it, such as its database.
    @ivar cores: The processors that it may use, in the form of C{taskset}.
    @ivar data: Settings for the recipe of its folder.
    @ivar isOurs: Whether it runs the package of this checkout.
    @ivar isTLS: Whether its port speaks TLS.
    """

    name: str
    command: "Callable[[Running], Sequence[object]] | None"
    version: Callable[[], str] = lambda: ""
    environment: Mapping[str, str] = field(factory=dict)
    prepare: "Callable[[Running], None]" = lambda running: None
    ask: "Callable[[Running], object]" = _askHTTP
    behind: "Callable[[Running], list[int]]" = lambda running: []
    cores: str = SERVER_CORE
    startSeconds: float = 40
    data: Any = None
    isOurs: bool = False
    isTLS: bool = False


@frozen
class Asked:
    """
    A bound for a figure of a case.

    The figure is set in relation to the same figure of C{against} in the same round, and the median
    of the rounds counts. Without C{against} the figure itself counts.

    @ivar bound: The least value, or the greatest if C{isMost}.
    @ivar ours: The server whose figure it is; the first of the case by default.
    @ivar case: The case of the other figure, if it is another case.
    @ivar connections: The number of connections; the first of the case by default.
    @ivar otherConnections: The number of the other figure; the same by default.
    @ivar figure: A field or property of L{bench.results.Cell}.
    @ivar text: Describes the figure, if it is no ratio of rates.
    @ivar isDifference: Whether the two figures are subtracted, not divided.
    """

    against: str
    bound: float
    connections: int = 0
    otherConnections: int = 0
    ours: str = ""
    case: str = ""
    figure: str = "rate"
    text: str = ""
    isMost: bool = False
    isDifference: bool = False


@frozen(eq=False)
class Case:
    """
    One kind of load, and the servers it compares.

    @ivar name: The folder and a name, such as C{s3/put4k}.
    @ivar what: One line about what it measures.
    @ivar servers: The first is ours, or the setting that the others are compared with.
    @ivar load: Checks an answer of a server and makes the load for a number of connections and
        seconds.
    @ivar unit: The thing that is counted.
    @ivar connections: Numbers of connections, or calls in flight, to measure with.
    @ivar quick: The numbers for a quick run; empty if a quick run leaves the case out.
    @ivar longer: Factor for the duration of a measurement.
    @ivar warmSeconds: Duration of a run that does not count, before the first round.
    @ivar isFresh: Whether each round starts a server of its own.
    @ivar isSetting: Whether the servers are settings of ours: then each is set in relation to the
        first, and else the first to each.
    """

    name: str
    what: str
    servers: tuple[Server, ...]
    load: "Callable[[Running, int, float], Load]"
    unit: str = "requests"
    connections: tuple[int, ...] = (64,)
    quick: tuple[int, ...] = ()
    asked: tuple[Asked, ...] = ()
    longer: int = 1
    warmSeconds: float = 1
    isFresh: bool = False
    isSetting: bool = False

    @property
    def folder(self) -> str:
        """Return the folder of its name."""
        return self.name.partition("/")[0]


def beside(server: Server, checkout: str) -> Server:
    """Return a server of ours that runs the package of another checkout."""
    environment = {**server.environment, "PYTHONPATH": checkout}
    return evolve(server, name="before", environment=environment, version=lambda: checkout)

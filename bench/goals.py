"""What the servers are to reach, as ratios within one run; S3 with durability C{full}."""

import statistics
from collections.abc import Callable
from functools import partial

from attrs import frozen

from bench.processes import FLOOR_NAME as FLOOR
from bench.results import Results

OURS = "storagegate"


@frozen
class Goal:
    """
    A rate to reach, in relation to another rate of the same run.

    @ivar least: The smallest ratio that will do.
    @ivar against: The server of the other rate.
    @ivar otherCase: The case of the other rate, where it is not the same.
    @ivar ours: The server whose rate it is.
    @ivar isPaired: Whether the ratio is the median of those of each round, for servers that are
        nearly alike: what else the machine does would count for more than what they differ in.
    """

    case: str
    connections: int
    least: float
    against: str
    otherCase: str = ""
    ours: str = OURS
    isPaired: bool = False

    @property
    def text(self) -> str:
        """Say what is to be reached."""
        other = f"{self.against} {self.otherCase}" if self.otherCase else self.against
        place = f"{self.case} x{self.connections}"
        return (
            f"{place} against {other}"
            if self.ours == OURS
            else f"{place}: {self.ours} against {other}"
        )

    def ratio(self, results: Results) -> float | None:
        """Give what was reached; L{None} where that was not measured."""
        if self.isPaired:
            ratios = results.ratios(self.ours, self.against, self.case, self.connections)
            return statistics.median(ratios) if ratios else None
        rate = results.rate(self.ours, self.case, self.connections)
        other = results.rate(self.against, self.otherCase or self.case, self.connections)
        return None if rate is None or not other else rate / other


@frozen
class Limit:
    """
    A figure of ours to stay under.

    @ivar text: Says what it is, with its unit.
    @ivar find: Draws it from a run; L{None} where that did not measure it.
    """

    text: str
    under: float
    find: Callable[[Results], float | None]


@frozen
class Verdict:
    """
    How a goal was met.

    @ivar measured: L{None} where the run did not measure it.
    """

    text: str
    needed: str
    measured: str | None
    reached: bool = False

    @property
    def word(self) -> str:
        """Say it in a word or two."""
        if self.measured is None:
            return "not measured"
        return "reached" if self.reached else "missed"


S3_GOALS = (
    Goal("put4k", 64, 5, "rclone"),
    Goal("get4k", 64, 2, "rclone"),
    Goal("head", 64, 1.2, "rclone"),
    Goal("mixed", 64, 4, "rclone"),
    Goal("get1m", 16, 8, "rclone"),
    Goal("get1m", 16, 0.8, "nginx"),
    Goal("get64m", 16, 8, "rclone"),
    Goal("get64m", 16, 0.8, "nginx"),
    Goal("put1m", 16, 2.2, "rclone"),
    Goal("put64m", 16, 1.5, "rclone"),
    Goal("delete", 16, 2, "rclone"),
    Goal("list10k", 16, 12, "rclone"),
    # One connection: there the rate is the inverse of the time that a list takes.
    Goal("list1m", 1, 1 / 1.5, OURS, "list10k"),
    Goal("listgroups", 1, 1 / 10, OURS, "list1m"),
    Goal("get4k", 64, 0.7, FLOOR, isPaired=True),
    Goal("head", 16, 0.7, FLOOR, isPaired=True),
    Goal("put4k", 64, 0.65, FLOOR, isPaired=True),
    Goal("mixed", 16, 0.7, FLOOR, isPaired=True),
)

HTTP_GOALS = (
    *(
        Goal(case, 64, least, against)
        for case in ("hello", "route10", "echo")
        for against, least in (("starlette", 1.3), ("twisted.web", 3), ("klein", 5), ("express", 5))
    ),
    Goal("static16k", 64, 3, "twisted.web"),
    Goal("static10m", 64, 3, "twisted.web"),
    Goal("static10m", 64, 0.8, "nginx"),
    Goal("route100", 64, 0.8, OURS, "route10"),
    Goal("hello", 64, 0.65, FLOOR, isPaired=True),
)

GRPC_GOALS = (
    Goal("unary", 64, 1.15, "grpc.aio"),
    Goal("server", 4, 1.5, "grpc.aio"),
)

GATEWAY_GOALS = (
    Goal("http", 64, 1.5, "moleculer"),
    Goal("websocket", 64, 0.8, "autobahn"),
    Goal("tcp", 64, 0.7, "twisted"),
    Goal("udp", 64, 0.5, "twisted"),
    Goal("websocket", 64, 0.75, FLOOR, isPaired=True),
    Goal("tcp", 64, 0.75, FLOOR, isPaired=True),
    Goal("udp", 64, 0.5, FLOOR, isPaired=True),
)

OVERHEAD_GOALS = (
    Goal("echo", 64, 0.95, "off", ours="on0.01", isPaired=True),
    Goal("get4k", 64, 0.95, "off", ours="on0.01", isPaired=True),
    Goal("workers-compute", 64, 1.9, "workers1", ours="workers2", isPaired=True),
)

_QUIET = "quiet"

GROWTH_GOALS = (
    *(
        Goal(case, connections, 0.9, _QUIET, ours=setting, isPaired=True)
        for setting in ("objects1m", "scanned1m", "keys1000")
        for case, connections in (("get4k", 64), ("head", 16), ("put4k", 64))
    ),
    *(
        Goal(case, connections, least, _QUIET, ours=setting, isPaired=True)
        for case, connections, setting, least in (
            ("overwrite4k", 64, "versioned", 0.75),
            ("list10k", 16, "versions10", 0.9),
            ("list10k", 16, "versionspage", 0.6),
            ("list1k", 16, "deleted1m", 0.8),
            ("getone", 64, "deep10k", 0.85),
            ("get4k-policy", 64, "policy1", 0.95),
            ("get4k-policy", 64, "policy20", 0.85),
        )
    ),
    Goal("tcp", 64, 0.9, _QUIET, ours="idle10k", isPaired=True),
)

_ROWS = ("put4k", "get4k", "head")
"""Of objects that are rows, or whose row alone is read."""

CLUSTER_GOALS = (
    *(Goal(case, 64, 0.6, "embedded", ours="node", isPaired=True) for case in _ROWS),
    Goal("put4k", 64, 0.8, "node", ours="standby", isPaired=True),
    Goal("put4k", 64, 0.9, "node", ours="nodes2", isPaired=True),
    *(
        Goal(f"{blobs}-{case}", 16, 0.6, bare, ours=blobs, isPaired=True)
        for blobs, bare in (("rados", "aio"), ("s3", "awscrt"))
        for case in ("put1m", "get1m")
    ),
)

CONSOLE_GOALS = (
    Goal("get4k", 64, 0.99, "none", ours="unused", isPaired=True),
    Goal("put4k", 64, 0.97, "none", ours="unused", isPaired=True),
    *(Goal(case, 64, 0.9, "unused", ours="live", isPaired=True) for case in ("get4k", "put4k")),
    *(
        Goal(case, connections, 0.9, "s3", ours="api", isPaired=True)
        for case, connections in (("upload", 3), ("download", 1))
    ),
)

GOALS = {
    "s3": S3_GOALS,
    "http": HTTP_GOALS,
    "grpc": GRPC_GOALS,
    "gateway": GATEWAY_GOALS,
    "overhead": OVERHEAD_GOALS,
    "growth": GROWTH_GOALS,
    "cluster": CLUSTER_GOALS,
    "console": CONSOLE_GOALS,
}
"""The goals of each bench."""


def _peakMegabytes(results: Results) -> float | None:
    return results.memory[OURS] / 1e6 if OURS in results.memory else None


def _besideStreamsMs(results: Results) -> float | None:
    return results.median(OURS, "open300", 64, lambda cell: cell.p99Ms)


def _streamsMegabytes(results: Results) -> float | None:
    return results.median(OURS, "open300", 64, lambda cell: (cell.grownBytes or 0) / 1e6)


def _invokerMicros(results: Results) -> float | None:
    """Give what a call takes, on a machine where the bare echo makes 20,000 a second."""
    calls = results.rate(OURS, "invoker", 1)
    bare = results.rate("twisted", "tcp", 64)
    return None if calls is None or bare is None else 1e6 / calls * bare / 20_000


S3_LIMITS = (Limit("peak memory of the whole run, MB", 100, _peakMegabytes),)
GRPC_LIMITS = (
    Limit("unary calls beside 300 open streams, p99 in ms", 100, _besideStreamsMs),
    Limit("memory of 300 open streams, MB", 40, _streamsMegabytes),
)

GATEWAY_LIMITS = (
    Limit("a call of the invoker where the bare TCP echo makes 20k/s, us", 25, _invokerMicros),
)


def _slowdownBeside(setting: str, results: Results) -> float | None:
    """Give how many times as long the slowest hundredth waits beside some work."""
    place = (setting, _QUIET, "get4k-beside", 4)
    ratios = results.ratios(*place, figure=lambda cell: cell.p99Ms)
    return statistics.median(ratios) if ratios else None


GROWTH_LIMITS = tuple(
    Limit(f"p99 of get4k beside {text}, times the quiet one", 2.5, partial(_slowdownBeside, name))
    for name, text in (
        ("upload", "an upload of 64 MiB"),
        ("list", "lists of 1,000 keys"),
        ("checkpoint", "writes and checkpoints"),
    )
)


def _nodeShare(results: Results) -> float | None:
    """Give how many times the CPU of the embedded daemon a node takes for a PUT."""
    own = [
        cell.cpuMicrosPerRequest - (cell.besideMicros or 0)
        for cell in results.cells("node", "put4k", 64)
    ]
    embedded = results.cells("embedded", "put4k", 64)
    ratios = [a / b.cpuMicrosPerRequest for a, b in zip(own, embedded, strict=False)]
    return statistics.median(ratios) if ratios else None


def _longerMs(case: str, results: Results) -> float | None:
    """Give by how many milliseconds a request that is alone takes longer."""
    pairs = zip(results.cells("node", case, 1), results.cells("embedded", case, 1), strict=False)
    found = [ours.p50Ms - theirs.p50Ms for ours, theirs in pairs]
    return statistics.median(found) if found else None


CLUSTER_LIMITS = (
    Limit("CPU of a node for a put4k, times the embedded daemon's", 1.1, _nodeShare),
    Limit("p50 of get4k alone, ms more than embedded", 0.4, partial(_longerMs, "get4k")),
)


def _pageMs(results: Results) -> float | None:
    """Give the processor time of the daemon for a page of a list, in milliseconds."""
    return results.median("million", "list1m", 1, lambda cell: cell.cpuMicrosPerRequest / 1000)


CONSOLE_LIMITS = (Limit("1,000 of a million keys by the console, ms of the daemon", 25, _pageMs),)

LIMITS = {
    "s3": S3_LIMITS,
    "http": (),
    "grpc": GRPC_LIMITS,
    "gateway": GATEWAY_LIMITS,
    "overhead": (),
    "growth": GROWTH_LIMITS,
    "cluster": CLUSTER_LIMITS,
    "console": CONSOLE_LIMITS,
}
"""The limits of each bench."""


def judge(goal: Goal, results: Results) -> Verdict:
    """Compare a goal with what was measured."""
    needed = f"{goal.least:.3g}"
    ratio = goal.ratio(results)
    if ratio is None:
        return Verdict(goal.text, needed, None)
    return Verdict(goal.text, needed, f"{ratio:.2f}", ratio >= goal.least)


def judgeLimit(limit: Limit, results: Results) -> Verdict:
    """Compare a figure with its limit."""
    needed = f"under {limit.under:g}"
    found = limit.find(results)
    if found is None:
        return Verdict(limit.text, needed, None)
    measured = f"{found:.0f}" if found >= 10 else f"{found:.1f}"
    return Verdict(limit.text, needed, measured, found < limit.under)


def verdicts(results: Results) -> list[Verdict]:
    """Judge every goal of a bench, and every limit."""
    found = [judge(goal, results) for goal in GOALS[results.bench]]
    return [*found, *(judgeLimit(limit, results) for limit in LIMITS[results.bench])]

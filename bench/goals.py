"""What the servers are to reach, as ratios within one run; S3 with durability C{full}."""

from attrs import frozen

from bench.results import Results

OURS = "storagegate"
PEAK_MEGABYTES = 100


@frozen
class Goal:
    """
    A rate to reach, in relation to another rate of the same run.

    @ivar least: The smallest ratio that will do.
    @ivar against: The server of the other rate.
    @ivar otherCase: The case of the other rate, where it is not the same.
    """

    case: str
    connections: int
    least: float
    against: str
    otherCase: str = ""

    @property
    def text(self) -> str:
        """Say what is to be reached."""
        other = f"{self.against} {self.otherCase}" if self.otherCase else self.against
        return f"{self.case} x{self.connections} against {other}"


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
)

GOALS = {"s3": S3_GOALS, "http": HTTP_GOALS}
"""The goals of each bench."""


def judge(goal: Goal, results: Results) -> Verdict:
    """Compare a goal with what was measured."""
    needed = f"{goal.least:.3g}"
    ours = results.rate(OURS, goal.case, goal.connections)
    other = results.rate(goal.against, goal.otherCase or goal.case, goal.connections)
    if ours is None or not other:
        return Verdict(goal.text, needed, None)
    ratio = ours / other
    return Verdict(goal.text, needed, f"{ratio:.2f}", ratio >= goal.least)


def judgeMemory(results: Results) -> Verdict:
    """Compare the peak of the resident size with its limit."""
    text, needed = "peak memory of the whole run, MB", f"under {PEAK_MEGABYTES}"
    if OURS not in results.memory:
        return Verdict(text, needed, None)
    megabytes = results.memory[OURS] / 1e6
    return Verdict(text, needed, f"{megabytes:.0f}", megabytes < PEAK_MEGABYTES)


def verdicts(results: Results) -> list[Verdict]:
    """Judge every goal of a bench."""
    found = [judge(goal, results) for goal in GOALS[results.bench]]
    return [*found, judgeMemory(results)] if results.bench == "s3" else found

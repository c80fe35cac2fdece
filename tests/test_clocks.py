"""Durations are measured by the monotonic clock; the wall clock is read for dates alone."""

import ast
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import moduleFiles, parse
from tests.support.selection import long

READINGS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "ctime"),
    ("time", "CLOCK_REALTIME"),
    ("datetime", "now"),
    ("datetime", "today"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("runtime", "seconds"),
}
"""What reads the wall clock: names of modules or classes, and their attributes."""

DATES = {
    "auth.tokens": "tokens have the date of their end",
    "cli.administration": "the creation of a key",
    "cli.cluster": "the date of a list of objects",
    "cli.doctor.configuration": "certificates have the date of their end",
    "cli.doctor.system": "compares the wall clock with the monotonic one, and with dates of files",
    "cli.keys": "keys have the date of their end",
    "cli.status": "the age of a date that the daemon gives",
    "cluster.backup": "the date of a backup",
    "cluster.counts.stores": "the end of a window is told to clients as a date",
    "console.call": "the date of a request",
    "console.gateway": "grpc takes deadlines as dates",
    "console.monitor": "steps of the figures begin at round dates",
    "console.overview": "the date of the start",
    "console.users": "the date of a change",
    "core.invoker": "the date of a call, and of its deadline",
    "core.ratelimit": "the end of a window is told to clients as a date",
    "daemon.components": "hands it to what makes dates",
    "daemon.daemon": "certificates have the date of their end",
    "gateway.messages.json": "the date of an event",
    "gateway.monitoring": "the date of a line, from a monotonic time",
    "gateway.transports.grpc.client": "grpc takes deadlines as dates, and makes durations of them",
    "http.options": "the date of a request, and of the end of a session",
    "http.sendfile": "the age of a date that a client gives",
    "http.sessions.stores": "sessions have the date of their end",
    "net.certificates": "compares it with dates of files",
    "net.endpoints": "takes the reactor off the wall clock",
    "net.http.message": "the field Date",
    "rpc.client": "grpc takes deadlines as dates",
    "rpc.engine.native.call": "as grpc: deadlines are dates, beside a monotonic time",
    "rpc.engine.native.clientcall": "as grpc: deadlines are dates, beside a monotonic time",
    "rpc.middleware": "the date of a line, and the end of a window",
    "rpc.testing": "as grpc: deadlines are dates",
    "objects.accounts": "keys have the date of their end",
    "objects.encryption.masterkeys.keyfile": "the date of a key",
    "s3.conditions": "the age of a date that a client gives",
    "s3.iam.endpoint": "the date of a request",
    "s3.handlers.post": "policies have the date of their end",
    "s3.observers": "the date of a line",
    "s3.request": "the date of a request, for conditions of policies",
    "s3.resource": "hands it to what makes dates",
    "services.objects": "the date of an object",
    "services.users": "the date of a user",
    "storage.embedded.backup": "the date of a backup",
    "storage.embedded.filestore": "the dates of files; nothing is removed by them after a step",
    "storage.clock": "watches it",
    "storage.commandresults": "the date of a result",
    "storage.accesskeys": "the date of the last use of a key",
    "telemetry.metrics": "the date of the start",
    "telemetry.otlp": "spans have dates",
}
"""The modules that read it, each with its reason. Durations, limits and timers are none."""


def readings(tree: ast.Module) -> Iterator[int]:
    """Give the lines that read the wall clock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value
            name = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
            if (name, node.attr) in READINGS:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom):
            of = (node.module or "").rpartition(".")[2]
            if any((of, each.name) in READINGS for each in node.names):
                yield node.lineno


class WallClockTests(SynchronousTestCase):
    """Which modules read the wall clock."""

    @long("takes a second or more")
    def test_dates(self) -> None:
        """Each has its reason, and each that has a reason reads it."""
        found = {
            module.partition(".")[2]: lines
            for module, path in moduleFiles().items()
            if (lines := sorted(readings(parse(path))))
        }
        unknown = {name: lines for name, lines in found.items() if name not in DATES}
        self.assertEqual(unknown, {}, "use time.monotonic, or give the reason here")
        self.assertEqual(sorted(DATES.keys() - found.keys()), [])

    @long("takes a second or more")
    def test_noReactorDates(self) -> None:
        """The time of the reactor is no date: nothing turns it into one."""
        makers = {"fromtimestamp", "gmtime", "localtime", "formatdate", "strftime", "ctime"}
        found = [
            f"{module}:{node.lineno}"
            for module, path in moduleFiles().items()
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Call)
            and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) in makers
            and any(
                isinstance(part, ast.Attribute) and part.attr in ("seconds", "monotonic")
                for argument in node.args
                for part in ast.walk(argument)
            )
        ]
        self.assertEqual(found, [])

    def test_finds(self) -> None:
        """The search finds each way to read it."""
        for text in (
            "import time\ntime.time()",
            "from time import time_ns",
            "import datetime\ndatetime.datetime.now()",
            "from twisted.python.runtime import seconds",
            "f(now=time.time)",
        ):
            self.assertEqual(len(list(readings(ast.parse(text)))), 1, text)
        self.assertEqual(list(readings(ast.parse("time.monotonic(); clock.seconds()"))), [])

"""
The daemon as the overhead bench starts it: with each part of monitoring on or off, or with workers.

Whatever is on, its options are those of a user's configuration file.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from bench.gatewaycases import POSTED
from bench.places import CHECKOUT
from bench.processes import SERVER_CORE
from bench.programs import storagegateVersion
from bench.s3cases import CASES as S3_CASES
from bench.s3recipes import CREDENTIALS, S3Recipe

ADMIN_SOCKET = "admin.sock"
CONFIGURATION = "storagegate.toml"
BOTH_CORES = "0,1"
OFF = "off"
S3 = "get4k"


@frozen
class Setting:
    """
    What a daemon has on.

    @ivar sampleRatio: Which part of calls is traced; C{None} for no tracing.
    @ivar workers: How many processes serve.
    """

    name: str
    metrics: bool = False
    logs: bool = False
    sampleRatio: float | None = None
    workers: int = 1


MONITORING = (
    Setting(OFF),
    Setting("on0.01", metrics=True, logs=True, sampleRatio=0.01),
    Setting("on1", metrics=True, logs=True, sampleRatio=1.0),
    Setting("metrics", metrics=True),
    Setting("logs", logs=True),
    Setting("trace0.01", sampleRatio=0.01),
    Setting("trace1", sampleRatio=1.0),
)
"""
Nothing; everything, with a sample of the traces and with all of them; each part alone.

In this order, so that what is judged is measured one after the other.
"""

WORKERS = (Setting("workers1"), Setting("workers2", workers=2))

SETTINGS: Mapping[str, Setting] = {each.name: each for each in (*MONITORING, *WORKERS)}


@frozen
class Case:
    """
    What is asked.

    @ivar target: The path of a call; empty for S3.
    @ivar settings: The daemons that are compared.
    """

    name: str
    target: str
    settings: tuple[Setting, ...] = MONITORING
    connections: tuple[int, ...] = (64,)


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("echo", "/api/Echo/echo"),
        Case(S3, ""),
        Case("workers-compute", "/api/Echo/compute", WORKERS),
        Case("workers-echo", "/api/Echo/echo", WORKERS),
    )
}

STORED = S3_CASES[S3]
"""What is read over S3."""

BODY = POSTED
"""What is posted to a service."""


@frozen
class OverheadRecipe(S3Recipe):
    """
    A daemon to be.

    @ivar isS3: Whether its port is that of S3, not of HTTP.
    @ivar isScraped: Whether its metrics are read while it works.
    """

    isS3: bool = False
    isScraped: bool = False


def configuration(setting: Setting, collector: int) -> str:
    """
    Write a daemon's configuration file.

    @param collector: The port of what takes spans.
    """
    lines = ['logFormat = "json"'] if setting.logs else []
    lines += ["[gateway.monitoring.metrics]", f"enabled = {str(setting.metrics).lower()}"]
    if setting.logs:
        lines += ["[gateway.monitoring.logging]", 'format = "json"']
    if setting.sampleRatio is not None:
        lines += ["[gateway.monitoring.tracing]", "enabled = true"]
        lines += [f'endpoint = "http://127.0.0.1:{collector}"']
        lines += [f"sampleRatio = {setting.sampleRatio}"]
    return "\n".join(lines) + "\n"


def makeRecipe(setting: Setting, case: Case, collector: int) -> OverheadRecipe:
    """
    Describe a daemon that has only the listener that the case needs.

    @param collector: The port of what takes spans.
    """

    def prepare(folder: Path, port: int) -> None:
        (folder / CONFIGURATION).write_text(configuration(setting, collector))

    def command(folder: Path, port: int) -> list[str]:
        twistd = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
        words = [*twistd, "-n", "--pidfile=", "storagegate", "--data", str(folder / "data")]
        words += ["--config", str(folder / CONFIGURATION)]
        place = f"tcp:{port}:interface=127.0.0.1"
        listeners = {"s3": place} if case.name == S3 else {"http": place}
        if setting.metrics:
            listeners["admin"] = f"unix:{folder / ADMIN_SOCKET}"
        for name in ("s3", "http", "admin", "grpc", "tcp", "udp"):
            words += [f"--{name}", listeners.get(name, "off")]
        if case.name != S3:
            words += ["--service", "bench.overheadservice:service"]
        if setting.workers > 1:
            words += ["--workers", str(setting.workers)]
        return words

    return OverheadRecipe(
        name=setting.name,
        command=command,
        describe=storagegateVersion,
        # The checkout comes first, or an installed copy would be measured.
        environment={
            "PYTHONPATH": str(CHECKOUT),
            "STORAGEGATE_ACCESS_KEY": CREDENTIALS.access,
            "STORAGEGATE_SECRET_KEY": CREDENTIALS.secret,
        },
        prepare=prepare,
        cores=BOTH_CORES if case.settings is WORKERS else SERVER_CORE,
        credentials=CREDENTIALS,
        isS3=case.name == S3,
        isScraped=setting.metrics,
    )

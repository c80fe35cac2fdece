"""The servers that are compared: the first of each case is the quiet one, or has the least."""

from bench.cases import Server
from bench.growth.callers import CALLERS
from bench.growth.recipe import QUIET, Monitoring, Setting, daemon, idleGateway, monitored

_MILLION = 1_000_000

_QUIET = daemon(Setting(QUIET))
GROWN = (
    _QUIET,
    daemon(Setting("objects1m", objects=_MILLION)),
    daemon(Setting("scanned1m", objects=_MILLION, isScanned=True)),
    daemon(Setting("keys1000", hasKeys=True)),
)
BESIDE = (
    _QUIET,
    *(daemon(Setting(name, beside=name)) for name in ("upload", "list", "put")),
)
VERSIONED = (_QUIET, daemon(Setting("versioned", history="enabled")))
VERSIONS = (
    _QUIET,
    daemon(Setting("versions10", objects=10_000, history="versions")),
    daemon(Setting("versionspage", objects=10_000, history="versions", isOld=True)),
)
DELETED = (_QUIET, daemon(Setting("deleted1m", objects=_MILLION, history="deleted")))
DEEP = (_QUIET, daemon(Setting("deep10k", objects=10_000, history="deep", isOld=True)))
SEALED = (_QUIET, daemon(Setting("sealed", isSealed=True)))
POLICIES = (
    daemon(Setting(QUIET, statements=0)),
    *(daemon(Setting(f"policy{count}", statements=count)) for count in (1, 20)),
)
CALLING = tuple(daemon(Setting(name, caller=name)) for name in CALLERS)

IDLE = {QUIET: 0, "idle10k": 10_000}
GATEWAYS = tuple(idleGateway(name, idle) for name, idle in IDLE.items())

_PARTS = {
    "off": Monitoring(),
    "on0.01": Monitoring(metrics=True, logs=True, sampleRatio=0.01),
    "on1": Monitoring(metrics=True, logs=True, sampleRatio=1.0),
    "metrics": Monitoring(metrics=True),
    "logs": Monitoring(logs=True),
    "trace0.01": Monitoring(sampleRatio=0.01),
    "trace1": Monitoring(sampleRatio=1.0),
}
"""Nothing; everything, with a sample of the traces and with all of them; each part alone."""


def monitoring(isS3: bool, names: tuple[str, ...]) -> tuple[Server, ...]:
    """Return daemons with parts of monitoring."""
    return tuple(monitored(name, isS3, _PARTS[name]) for name in names)


WORKERS = (monitored("workers1", False), monitored("workers2", False, workers=2))
EVERY_PART = tuple(_PARTS)
MAIN_PARTS = ("off", "on0.01")

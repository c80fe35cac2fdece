"""The daemons that are compared: without a console, with one that is idle, used or watched."""

from bench.console.recipe import LISTED, Setting, daemon

SETTINGS = {
    "none": Setting(),
    "unused": Setting(),
    "used": Setting(isUsed=True),
    "live": Setting(isUsed=True, isLive=True),
}
DAEMONS = tuple(daemon(name, hasConsole=name != "none") for name in SETTINGS)
MILLION = daemon("million", listed=(LISTED,))

"""
The daemon and the gateway as the growth bench starts them: quiet, grown, or with work beside.

Each case has a server for each of its settings, of which the first is the quiet one.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve, frozen

from bench import s3recipes
from bench.gatewayrecipes import RECIPES as GATEWAY_RECIPES
from bench.gatewayrecipes import GatewayRecipe
from bench.places import BULK_FILL, KEY_FILL
from bench.s3cases import LISTED_SIZE
from bench.s3recipes import S3Recipe

QUIET = "quiet"
TCP = "tcp"


@frozen
class Setting:
    """
    What makes a server's life harder.

    @ivar objects: How many other objects the store has.
    @ivar hasKeys: Whether a thousand keys with policies take turns.
    @ivar idle: How many connections are open that say nothing.
    @ivar beside: What is done meanwhile: C{upload}, C{list} or C{checkpoint}.
    """

    name: str
    objects: int = 0
    hasKeys: bool = False
    idle: int = 0
    beside: str = ""


@frozen
class Case:
    """
    What is asked.

    @ivar s3: The case of the S3 bench; empty for calls over TCP.
    @ivar settings: The servers that are compared.
    """

    name: str
    s3: str
    settings: tuple[Setting, ...]
    connections: tuple[int, ...] = (64,)


KEYS = Setting("keys1000", hasKeys=True)

_GROWN = (Setting(QUIET), Setting("objects1m", objects=1_000_000), KEYS)
_BESIDE = (
    Setting(QUIET),
    *(Setting(name, beside=name) for name in ("upload", "list", "checkpoint")),
)

CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("get4k", "get4k", _GROWN),
        Case("head", "head", _GROWN, (16,)),
        Case("put4k", "put4k", _GROWN),
        # Few connections, or the wait for one another would hide what is waited for.
        Case("get4k-beside", "get4k", _BESIDE, (4,)),
        Case(TCP, "", (Setting(QUIET), Setting("idle10k", idle=10_000))),
    )
}

SETTINGS = tuple(dict.fromkeys(each.name for case in CASES.values() for each in case.settings))


def shrink(setting: Setting) -> Setting:
    """Take a hundredth, to show that all works."""
    return evolve(setting, objects=setting.objects // 100, idle=setting.idle // 100)


def makeS3Recipe(setting: Setting) -> S3Recipe:
    """Describe a daemon."""
    recipe = s3recipes.storagegate("full")

    def prepare(folder: Path, port: int) -> None:
        environment = {**os.environ, **recipe.environment}
        data = str(folder / "data")
        commands = []
        if setting.objects:
            words = ["grown", str(setting.objects), str(LISTED_SIZE)]
            commands.append([sys.executable, str(BULK_FILL), data, *words])
        if setting.hasKeys:
            commands.append([sys.executable, str(KEY_FILL), data])
        for command in commands:
            subprocess.run(command, check=True, env=environment)

    return evolve(recipe, name=setting.name, prepare=prepare)


def makeGatewayRecipe(setting: Setting) -> GatewayRecipe:
    """Describe a gateway that has room for idle connections."""
    [recipe] = [each for each in GATEWAY_RECIPES if (each.name, each.wire) == ("storagegate", TCP)]
    inner = recipe.command

    def command(folder: Path, port: int) -> list[str]:
        # Others than these must find room, too.
        return [*inner(folder, port), str(2 * setting.idle + 1000)]

    return evolve(recipe, name=setting.name, command=command)

"""
The daemon and the gateway as the growth bench starts them: quiet, grown, or with work beside.

Each case has a server for each of its settings, of which the first is the quiet one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve, frozen

from bench import s3recipes
from bench.gatewayrecipes import RECIPES as GATEWAY_RECIPES
from bench.gatewayrecipes import GatewayRecipe
from bench.keyfill import ACCOUNT
from bench.places import BULK_FILL, KEY_FILL, VERSION_FILL
from bench.s3cases import BUCKET, FEW, LISTED_SIZE, storedPaths
from bench.s3cases import CASES as S3_BENCH
from bench.s3cases import Case as S3Case
from bench.s3recipes import S3Recipe

QUIET = "quiet"
GROWN = "grown"
"""The bucket of the other objects."""

TCP = "tcp"


@frozen
class Setting:
    """
    What makes a server's life harder.

    @ivar objects: How many other objects the store has.
    @ivar hasKeys: Whether a thousand keys with policies take turns.
    @ivar idle: How many connections are open that say nothing.
    @ivar beside: What is done meanwhile: C{upload}, C{list} or C{checkpoint}.
    @ivar history: The versions that C{versionfill.py} makes before the start, C{objects} of them or
        keys with them: C{versions}, C{deleted} or C{deep}; C{enabled} makes none.
    @ivar isOld: Whether versions are requested in place of objects: a page of them, or one.
    @ivar statements: How many statements the policy of the bucket has; L{None} if the root key
        asks, and not an issued one, which a policy binds.
    @ivar isScanned: Whether the other objects are scanned for expired ones all the time.
    """

    name: str
    objects: int = 0
    hasKeys: bool = False
    idle: int = 0
    beside: str = ""
    history: str = ""
    isOld: bool = False
    statements: int | None = None
    isScanned: bool = False


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

_GROWN = (
    Setting(QUIET),
    Setting("objects1m", objects=1_000_000),
    Setting("scanned1m", objects=1_000_000, isScanned=True),
    KEYS,
)
_OLDER = Setting("versions10", objects=10_000, history="versions")
_POLICIES = (
    Setting(QUIET, statements=0),
    *(Setting(f"policy{count}", statements=count) for count in (1, 20)),
)
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
        Case(
            "overwrite4k", "overwrite4k", (Setting(QUIET), Setting("versioned", history="enabled"))
        ),
        Case(
            "list10k",
            "list10k",
            (Setting(QUIET), _OLDER, evolve(_OLDER, name="versionspage", isOld=True)),
            (16,),
        ),
        Case(
            "list1k",
            "list1k",
            (Setting(QUIET), Setting("deleted1m", objects=1_000_000, history="deleted")),
            (16,),
        ),
        Case(
            "getone",
            "getone",
            (Setting(QUIET), Setting("deep10k", objects=10_000, history="deep", isOld=True)),
        ),
        Case("get4k-policy", "get4k", _POLICIES),
        Case(TCP, "", (Setting(QUIET), Setting("idle10k", idle=10_000))),
    )
}

S3_CASES: Mapping[str, S3Case] = {
    **S3_BENCH,
    "overwrite4k": S3Case("overwrite4k", "overwrite", 1_000),
    "list1k": S3Case("list1k", "list", 1_000, LISTED_SIZE, FEW),
    "getone": S3Case("getone", "get", 1),
}
"""What is asked of the daemon; those that other servers are not asked are only here."""

_PREFILLED: Mapping[str, Mapping[str, int]] = {
    "versions": {S3_CASES["list10k"].bucket: 10_000},
    "deleted": {S3_CASES["list1k"].bucket: 1_000},
    "deep": {BUCKET: 0, storedPaths(S3_CASES["getone"])[0]: 1},
}

SETTINGS = tuple(dict.fromkeys(each.name for case in CASES.values() for each in case.settings))


def shrink(setting: Setting) -> Setting:
    """Take a hundredth, to show that all works."""
    # The keys of a list are as many as the case says.
    objects = setting.objects if setting.history == "versions" else setting.objects // 100
    return evolve(setting, objects=objects, idle=setting.idle // 100)


def policyOf(count: int) -> bytes:
    """
    Write a policy.

    @param count: Its statements, of which the last allows all to the account of the issued keys,
        and half of the others are about the same objects.
    """
    bucket = BUCKET[1:]
    statements: list[dict[str, object]] = [
        {
            "Sid": f"s{number}",
            "Effect": "Deny" if number % 2 else "Allow",
            "Principal": "*" if number % 4 == 1 else {"AWS": "arn:aws:iam::root:root"},
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"arn:aws:s3:::{bucket}/{'' if number % 4 < 2 else f'team{number}/'}*",
            "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
        }
        for number in range(count - 1)
    ]
    statements.append(
        {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        }
    )
    return json.dumps({"Version": "2012-10-17", "Statement": statements}).encode()


def makeS3Recipe(setting: Setting) -> S3Recipe:
    """Describe a daemon."""
    recipe = s3recipes.storagegate("full")
    if setting.isScanned:
        # A round takes longer than such a day, so that the next one follows at once.
        day = {"STORAGEGATE_LIFECYCLE_DAY_SECONDS": "1"}
        recipe = evolve(recipe, environment={**recipe.environment, **day})

    def prepare(folder: Path, port: int) -> None:
        environment = {**os.environ, **recipe.environment}
        data = str(folder / "data")
        commands = []
        if setting.history not in ("", "enabled"):
            words = [setting.history, str(setting.objects)]
            commands.append([sys.executable, str(VERSION_FILL), data, *words])
        elif setting.objects:
            words = [GROWN, str(setting.objects), str(LISTED_SIZE)]
            commands.append([sys.executable, str(BULK_FILL), data, *words])
        if setting.hasKeys or setting.statements is not None:
            commands.append([sys.executable, str(KEY_FILL), data])
        for command in commands:
            subprocess.run(command, check=True, env=environment)

    prefilled = {} if setting.history in ("", "enabled") else _PREFILLED[setting.history]
    return evolve(recipe, name=setting.name, prepare=prepare, prefilled=prefilled)


def makeGatewayRecipe(setting: Setting) -> GatewayRecipe:
    """Describe a gateway that has room for idle connections."""
    [recipe] = [each for each in GATEWAY_RECIPES if (each.name, each.wire) == ("storagegate", TCP)]
    inner = recipe.command

    def command(folder: Path, port: int) -> list[str]:
        # Others than these must find room, too.
        return [*inner(folder, port), str(2 * setting.idle + 1000)]

    return evolve(recipe, name=setting.name, command=command)

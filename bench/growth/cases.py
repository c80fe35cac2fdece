"""The cases of growth. The servers of a case are settings of ours."""

from bench.cases import Asked, Case, Server
from bench.gateway.recipe import ECHO_PATH
from bench.growth import peers
from bench.growth.recipe import (
    LIST1K,
    ONE,
    QUIET,
    besideIdle,
    grown,
    monitoredWork,
    postTo,
    ranged,
)
from bench.s3.requests import GET4K, GIB, HEAD, LIST10K, MIB, PUT4K, Work


def _case(
    name: str,
    what: str,
    servers: tuple[Server, ...],
    work: Work,
    connections: int = 64,
    least: tuple[float, ...] = (),
    asked: tuple[Asked, ...] = (),
    isQuick: bool = True,
) -> Case:
    """
    Make a case of S3 requests.

    @param least: The least ratio of each setting but the first.
    """
    ratios = zip(servers[1:], least, strict=False)
    return Case(
        f"growth/{name}",
        what,
        servers,
        grown(work),
        connections=(connections,),
        quick=(connections,) if isQuick else (),
        asked=(*(Asked(QUIET, bound, ours=each.name) for each, bound in ratios), *asked),
        warmSeconds=0,
        isSetting=True,
    )


CASES = (
    _case("get4k", "GET beside a million objects", peers.GROWN, GET4K, least=(0.9,) * 3),
    _case(
        "head", "HEAD beside a million objects", peers.GROWN, HEAD, 16, (0.9,) * 3, isQuick=False
    ),
    _case("put4k", "PUT beside a million objects", peers.GROWN, PUT4K, least=(0.9,) * 3),
    # Few connections, or their wait for one another would hide the effect.
    _case(
        "get4k-beside",
        "GET beside uploads, lists, writes",
        peers.BESIDE,
        GET4K,
        4,
        asked=tuple(
            Asked(
                QUIET,
                2.5,
                ours=each.name,
                figure="p99Ms",
                text=f"p99 beside {each.name}, times the quiet one",
                isMost=True,
            )
            for each in peers.BESIDE[1:]
        ),
    ),
    _case(
        "overwrite4k",
        "PUT of existing objects, which keeps their versions",
        peers.VERSIONED,
        Work("overwrite", 1_000),
        least=(0.75,),
    ),
    _case(
        "list10k",
        "a list of keys with ten versions each, and a page of versions",
        peers.VERSIONS,
        LIST10K,
        16,
        (0.9, 0.6),
    ),
    _case(
        "list1k",
        "a list beside a million deleted keys",
        peers.DELETED,
        LIST1K,
        16,
        (0.8,),
        isQuick=False,
    ),
    _case("getone", "GET of the middle of 10,000 versions", peers.DEEP, ONE, least=(0.85,)),
    _case(
        "get4k-policy",
        "GET in a bucket with a policy of 1 or 20 statements",
        peers.POLICIES,
        GET4K,
        least=(0.95, 0.85),
    ),
    *(
        _case(
            f"sealed-{name}",
            f"{what}, encrypted with keys of the store",
            peers.SEALED,
            work,
            connections,
            (least,),
        )
        for name, what, work, connections, least in (
            ("put4k", "PUT of 4 KiB", PUT4K, 64, 0.8),
            ("get4k", "GET of 4 KiB", GET4K, 64, 0.8),
            ("put1m", "PUT of 1 MiB", Work("put", 4_000, MIB), 16, 0.8),
            ("get1m", "GET of 1 MiB", Work("get", 32, MIB), 16, 0.35),
            ("get64m", "GET of 64 MiB", Work("get", 2, 64 * MIB), 16, 0.3),
        )
    ),
    Case(
        "growth/sealed-range4k",
        "GET of 4 KiB of 1 GiB, encrypted with keys of the store",
        peers.SEALED,
        ranged(GIB, 1_000),
        connections=(1, 64),
        asked=(Asked(QUIET, 0.6, ours="sealed"),),
        warmSeconds=0,
        isSetting=True,
    ),
    *(
        _case(
            f"callers-{name}",
            f"{what} by a key, a user with a policy, and temporary keys of both",
            peers.CALLING,
            work,
            asked=(
                Asked("key", 0.97, ours="user"),
                Asked("key", 0.95, ours="keysession"),
                Asked("user", 0.95, ours="usersession"),
            ),
        )
        for name, what, work in (("get4k", "GET of 4 KiB", GET4K), ("put4k", "PUT of 4 KiB", PUT4K))
    ),
    Case(
        "growth/tcp",
        "calls over TCP beside 10,000 idle connections",
        peers.GATEWAYS,
        besideIdle(peers.IDLE),
        "calls",
        quick=(64,),
        asked=(Asked(QUIET, 0.9, ours="idle10k"),),
        isSetting=True,
    ),
    *(
        Case(
            f"growth/{name}-{kind}",
            f"{what} with {text} of monitoring",
            peers.monitoring(name == "get4k", parts),
            load,
            quick=quick,
            asked=(Asked("off", 0.95, ours="on0.01"),) if quick else (),
            isSetting=True,
        )
        for kind, text, parts, quick in (
            ("monitored", "all", peers.MAIN_PARTS, (64,)),
            ("parts", "each part", peers.EVERY_PART, ()),
        )
        for name, what, load in (
            ("echo", "a call over HTTP", postTo(ECHO_PATH)),
            ("get4k", "GET", monitoredWork(GET4K)),
        )
    ),
    *(
        Case(
            f"growth/workers-{name}",
            f"{what}, with one worker and with two",
            peers.WORKERS,
            postTo(f"/api/Echo/{name}"),
            "calls",
            quick=(64,) if asked else (),
            asked=asked,
            isSetting=True,
        )
        for name, what, asked in (
            (
                "compute",
                "calls that hash for 200 us",
                (Asked("workers1", 1.9, ours="workers2"),),
            ),
            # There the load takes too much of the two cores for an asked figure.
            ("echo", "calls that echo", ()),
        )
    ),
)

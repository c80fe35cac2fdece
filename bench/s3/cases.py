"""The cases of S3, with C{durability = full}: a write is synced before it is answered."""

from bench.cases import FLOOR as FLOOR_NAME
from bench.cases import OURS, Asked, Case, Server
from bench.s3.peers import FLOOR, NGINX, RCLONE
from bench.s3.recipe import WorkLoad, storagegate
from bench.s3.requests import (
    GET4K,
    HEAD,
    LIST10K,
    LISTED_SIZE,
    MIB,
    MILLION,
    PUT4K,
    Work,
)

_MILLION = Work("list", MILLION, LISTED_SIZE)
_SERVER = storagegate()
_LARGE = storagegate(works=[_MILLION])
_SMALL = (_SERVER, FLOOR, RCLONE, NGINX)
_BIG = (_SERVER, RCLONE, NGINX)
_ALL, _FEW = (64, 16, 1), (16, 1)


def _case(
    name: str,
    what: str,
    work: Work,
    servers: tuple[Server, ...] = _SMALL,
    connections: tuple[int, ...] = _ALL,
    asked: tuple[Asked, ...] = (),
    quick: bool = True,
) -> Case:
    return Case(
        f"s3/{name}",
        what,
        servers,
        WorkLoad(work),
        connections=connections,
        quick=connections[:1] if quick else (),
        asked=asked,
        warmSeconds=0,
    )


CASES = (
    _case(
        "put4k",
        "PUT of new objects of 4 KiB",
        PUT4K,
        asked=(Asked("rclone", 5), Asked(FLOOR_NAME, 0.65)),
    ),
    _case(
        "get4k",
        "GET of objects of 4 KiB",
        GET4K,
        asked=(Asked("rclone", 2), Asked(FLOOR_NAME, 0.7)),
    ),
    _case("head", "HEAD", HEAD, asked=(Asked("rclone", 1.2), Asked(FLOOR_NAME, 0.7))),
    _case(
        "mixed",
        "70 reads to 30 overwriting writes of 4 KiB",
        Work("mixed", 1_000),
        asked=(Asked("rclone", 4), Asked(FLOOR_NAME, 0.7)),
    ),
    _case(
        "delete",
        "DELETE of objects of 4 KiB",
        Work("delete", 3_000),
        connections=(16, 64, 1),
        asked=(Asked("rclone", 2),),
    ),
    _case(
        "get1m",
        "GET of objects of 1 MiB",
        Work("get", 32, MIB),
        _BIG,
        (16, 64, 1),
        (Asked("rclone", 8), Asked("nginx", 0.8)),
    ),
    _case(
        "put1m",
        "PUT of new objects of 1 MiB",
        Work("put", 4_000, MIB),
        _BIG,
        (16, 64, 1),
        (Asked("rclone", 2.2),),
    ),
    # 64 connections would hold 4 GiB in flight: half a minute a cell with the slower servers.
    _case(
        "get64m",
        "GET of objects of 64 MiB",
        Work("get", 2, 64 * MIB),
        _BIG,
        _FEW,
        (Asked("rclone", 8), Asked("nginx", 0.8)),
        quick=False,
    ),
    _case(
        "put64m",
        "PUT of new objects of 64 MiB",
        Work("put", 100, 64 * MIB),
        _BIG,
        _FEW,
        (Asked("rclone", 1.5),),
        quick=False,
    ),
    _case(
        "list10k",
        "the first 1,000 of 10,000 keys",
        LIST10K,
        (_SERVER, FLOOR, RCLONE),
        _FEW,
        (Asked("rclone", 12),),
    ),
    _case(
        "list100k",
        "the first 1,000 of 100,000 keys",
        Work("list", 100_000, LISTED_SIZE),
        (_SERVER, RCLONE),
        _FEW,
        quick=False,
    ),
    # With one connection the rate is the inverse of the time of a list.
    _case(
        "list1m",
        "the first 1,000 of a million keys",
        _MILLION,
        (_LARGE,),
        (1, 16),
        (Asked(OURS, 1 / 1.5, case="s3/list10k"),),
        quick=False,
    ),
    _case(
        "listgroups",
        "1,000 common prefixes of a million keys",
        Work("list", MILLION, LISTED_SIZE, delimiter="-"),
        (_LARGE,),
        (1, 16),
        (Asked(OURS, 1 / 10, case="s3/list1m"),),
        quick=False,
    ),
)

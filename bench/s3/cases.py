"""The cases of S3, with C{durability = full}: a write is synced before it is answered."""

from bench.cases import OURS, Asked, Case, Server
from bench.loads import HTTP1
from bench.s3.peers import NGINX, NGINX_TLS, RCLONE
from bench.s3.recipe import WorkLoad, storagegate
from bench.s3.requests import GET4K, HEAD, KIB, LIST10K, LISTED_SIZE, MIB, MILLION, PUT4K, Work
from bench.s3.tls import MultiplexedGet, ResumedGet, overTLS

_MILLION = Work("list", MILLION, LISTED_SIZE)
_GROUPS = Work("list", MILLION, LISTED_SIZE, delimiter="-")
_GET64M, _PUT64M = Work("get", 2, 64 * MIB), Work("put", 100, 64 * MIB)
_SERVER = storagegate()
_LARGE = storagegate(works=[_MILLION])
_ALL = (_SERVER, RCLONE, NGINX)
_TLS = overTLS()
_LISTING = (_SERVER, RCLONE)
_HALF = (Asked("nginx", 0.8),)


def _case(
    name: str,
    what: str,
    work: Work,
    connections: tuple[int, ...],
    rclone: float = 0,
    servers: tuple[Server, ...] = _ALL,
    more: tuple[Asked, ...] = (),
    quick: bool = True,
) -> Case:
    """
    Make a case.

    @param rclone: The least ratio to rclone.
    """
    return Case(
        f"s3/{name}",
        what,
        servers,
        WorkLoad(work),
        connections=connections,
        quick=connections[:1] if quick else (),
        asked=(*((Asked("rclone", rclone),) if rclone else ()), *more),
        warmSeconds=0,
    )


CASES = (
    _case("put4k", "PUT of new objects of 4 KiB", PUT4K, (64, 16, 1), 5),
    _case("get4k", "GET of objects of 4 KiB", GET4K, (64, 16, 1), 2),
    _case("head", "HEAD", HEAD, (64, 16, 1), 1.2),
    _case("mixed", "70 reads to 30 overwriting writes", Work("mixed", 1_000), (64, 16, 1), 4),
    _case("delete", "DELETE of objects of 4 KiB", Work("delete", 3_000), (16, 64, 1), 2),
    _case("get1m", "GET of 1 MiB", Work("get", 32, MIB), (16, 64, 1), 8, more=_HALF),
    _case("put1m", "PUT of 1 MiB", Work("put", 4_000, MIB), (16, 64, 1), 2.2),
    # 64 connections would hold 4 GiB in flight: half a minute a cell with the slower servers.
    _case("get64m", "GET of 64 MiB", _GET64M, (16, 1), 8, more=_HALF, quick=False),
    _case("put64m", "PUT of 64 MiB", _PUT64M, (16, 1), 1.5, quick=False),
    _case("list10k", "the first 1,000 of 10,000 keys", LIST10K, (16, 1), 12, _LISTING),
    _case(
        "list100k",
        "the first 1,000 of 100,000 keys",
        Work("list", 100_000, LISTED_SIZE),
        (16, 1),
        servers=_LISTING,
        quick=False,
    ),
    # With one connection the rate is the inverse of the time of a list.
    _case(
        "list1m",
        "the first 1,000 of a million keys",
        _MILLION,
        (1, 16),
        servers=(_LARGE,),
        more=(Asked(OURS, 1 / 1.5, case="s3/list10k"),),
        quick=False,
    ),
    _case(
        "listgroups",
        "1,000 common prefixes of a million keys",
        _GROUPS,
        (1, 16),
        servers=(_LARGE,),
        more=(Asked(OURS, 1 / 10, case="s3/list1m"),),
        quick=False,
    ),
    Case(
        "s3/tls-get1m",
        "GET of 1 MiB over TLS: HTTP/2 on one connection, HTTP/1.1 on 16",
        (_TLS, overTLS(f"{OURS}, {HTTP1}", HTTP1)),
        MultiplexedGet(MIB),
        connections=(16,),
        quick=(16,),
        asked=(Asked(f"{OURS}, {HTTP1}", 0.8),),
        warmSeconds=0,
    ),
    *(
        Case(
            f"s3/tls-get4k-{name}",
            f"GET of 4 KiB over TLS {version}, each on a new connection with a resumed session",
            (_TLS, NGINX_TLS),
            ResumedGet(4 * KIB, version),
            connections=(16,),
            quick=quick,
            asked=(Asked("nginx", 0.45),),
            warmSeconds=0,
        )
        for name, version, quick in (("new", "1.3", (16,)), ("new12", "1.2", ()))
    ),
)

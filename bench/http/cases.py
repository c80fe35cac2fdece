"""The cases of the HTTP framework, each with 64 connections of wrk."""

from bench.cases import FLOOR as FLOOR_NAME
from bench.cases import OURS, Asked, Case
from bench.http.peers import FLOOR, NGINX, frameworks
from bench.http.recipe import ECHO, FEW_ROUTES, HELLO, MANY_ROUTES, filePage, lastRoute

_FRAMEWORKS = frameworks(FEW_ROUTES)
_MANY = frameworks(MANY_ROUTES)
_FASTER = (
    Asked("starlette", 1.3),
    Asked("twisted.web", 3),
    Asked("klein", 5),
    Asked("express", 5),
)
_QUICK = (64,)

CASES = (
    Case(
        "http/hello",
        "a text",
        (_FRAMEWORKS[0], FLOOR, *_FRAMEWORKS[1:]),
        HELLO,
        quick=_QUICK,
        asked=(*_FASTER, Asked(FLOOR_NAME, 0.65)),
    ),
    Case(
        "http/route10",
        "the last of 10 routes with a parameter",
        _FRAMEWORKS,
        lastRoute(FEW_ROUTES),
        quick=_QUICK,
        asked=_FASTER,
    ),
    Case(
        "http/echo",
        "1 KiB of JSON, parsed and written",
        _FRAMEWORKS,
        ECHO,
        quick=_QUICK,
        asked=_FASTER,
    ),
    Case(
        "http/static16k",
        "a file of 16 KiB",
        (*_FRAMEWORKS, NGINX),
        filePage("16k.bin"),
        quick=_QUICK,
        asked=(Asked("twisted.web", 3),),
    ),
    # With 64 answers at once the slowest servers take seconds until the first one is complete.
    Case(
        "http/static10m",
        "a file of 10 MiB",
        (*_FRAMEWORKS, NGINX),
        filePage("10m.bin"),
        longer=2,
        asked=(Asked("twisted.web", 3), Asked("nginx", 0.8)),
    ),
    Case(
        "http/route100",
        "the last of 100 routes with a parameter",
        _MANY,
        lastRoute(MANY_ROUTES),
        asked=(Asked(OURS, 0.8, case="http/route10"),),
    ),
)

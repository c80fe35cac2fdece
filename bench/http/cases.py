"""The cases of the HTTP framework, with 64 connections of wrk, or one of h2load for HTTP/2."""

from bench.cases import OURS, Asked, Case
from bench.http.peers import NGINX, frameworks, http2Servers, typedFrameworks
from bench.http.recipe import (
    ECHO,
    FEW_ROUTES,
    HELLO,
    MANY_ROUTES,
    TYPED,
    MultiplexedPage,
    filePage,
    lastRoute,
)
from bench.loads import HTTP1

_FEW, _MANY = frameworks(FEW_ROUTES), frameworks(MANY_ROUTES)
_FILES = (*_FEW, NGINX)
_BOUNDS = {"starlette": 1.3, "twisted.web": 3, "klein": 5, "express": 5}
_FASTER = tuple(Asked(peer, bound) for peer, bound in _BOUNDS.items())
_TYPED = (
    Asked("by hand", 0.8),
    Asked("fastapi", 3),
    Asked("litestar", 1),
    Asked("blacksheep", 1),
)
_MULTIPLEXED = (
    Asked(f"storagegate, {HTTP1}", 0.9),
    *(Asked(peer, 1) for peer in ("granian", "hypercorn", "node http2")),
)
_TWISTED = Asked("twisted.web", 3)
_FEWER = Asked(OURS, 0.8, case="http/route10")
_SMALL, _LARGE = filePage("16k.bin"), filePage("10m.bin")

CASES = (
    Case("http/hello", "a text", _FEW, HELLO, quick=(64,), asked=_FASTER),
    Case(
        "http/h2hello",
        "a text over HTTP/2, with 64 streams on one connection",
        http2Servers(),
        MultiplexedPage(HELLO),
        quick=(64,),
        asked=_MULTIPLEXED,
        # The median leaves a cold round out.
        warmSeconds=0,
    ),
    Case("http/route10", "the last of 10 routes", _FEW, lastRoute(10), asked=_FASTER),
    Case("http/echo", "1 KiB of JSON, read and written", _FEW, ECHO, quick=(64,), asked=_FASTER),
    Case(
        "http/typed",
        "an order with types in path, query and body",
        typedFrameworks(),
        TYPED,
        quick=(64,),
        asked=_TYPED,
    ),
    Case("http/static16k", "a file of 16 KiB", _FILES, _SMALL, quick=(64,), asked=(_TWISTED,)),
    # With 64 answers at once the slowest servers take seconds until the first one is complete.
    Case(
        "http/static10m",
        "a file of 10 MiB",
        _FILES,
        _LARGE,
        longer=2,
        asked=(_TWISTED, Asked("nginx", 0.8)),
    ),
    Case("http/route100", "the last of 100 routes", _MANY, lastRoute(100), asked=(_FEWER,)),
)

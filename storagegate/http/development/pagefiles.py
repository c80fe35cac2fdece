"""Where an application has the files that pages are made of."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from storagegate.http.layers import LayerList
from storagegate.http.middleware.staticfiles import StaticOptions


def staticRoots(app: LayerList) -> frozenset[str]:
    """Give the directories that an application and its routers serve with C{staticFiles}."""
    return frozenset(
        os.fsdecode(function.args[0].root)
        for function in functionsOf(app)
        if isinstance(function, partial)
        and function.args
        and isinstance(function.args[0], StaticOptions)
    )


def functionsOf(app: LayerList) -> Iterator[Any]:
    """Give the handlers and the middleware of an application and its routers."""
    return _functions(app, set())


def _functions(router: LayerList, seen: set[int]) -> Iterator[Any]:
    if id(router) in seen:
        return
    seen.add(id(router))
    for layer in router.layers:
        handlers = list(layer.handlers)
        if layer.route is not None:
            for _, registered in layer.route.registrations:
                handlers.extend(registered)
        for function, _ in handlers:
            yield function
        if layer.router is not None:
            yield from _functions(layer.router, seen)

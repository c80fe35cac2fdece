"""Lists of methods, as middleware takes them."""

import re
from collections.abc import Callable, Iterable
from typing import Any

_NAME = re.compile(r"/?(?:([^/\s]+)/)?([^/\s]+)")


def methodMatcher(names: Iterable[str], option: str) -> Callable[[Any], bool]:
    """
    Make the function that tells whether a call is of one of the methods of a list.

    @param names: C{GetUser} is a method of any service, C{user.UserService/GetUser} that of one,
        with or without a C{/} in front, and C{user.UserService/*} is all of one.
    @param option: What the list is called, for the error.
    @raise TypeError: If it is no list of names.
    @raise ValueError: If something in it is the name of no method.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{option} is a list of names of methods, not {names!r}")
    methods: set[str] = set()
    paths: set[str] = set()
    services: set[str] = set()
    for name in names:
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        service, method = match.groups() if match is not None else (None, "*")
        if method != "*" and service is None:
            methods.add(method)
        elif service is None:
            raise ValueError(f"{name!r} in {option} is not the name of a method")
        elif method == "*":
            services.add(service)
        else:
            paths.add(f"/{service}/{method}")

    def matches(call: Any) -> bool:
        return call.method in methods or call.service in services or call.path in paths

    return matches

"""
The members of the etcd cluster that Patroni uses, for C{storagegate cluster status}. All functions
block.

A member whose machine returns with an empty disk never rejoins by itself. The other two members
keep the cluster running, so only the next failure reveals it. The functions therefore query the
health of each member, and the member list from one that answers.
"""

import json
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

_SECONDS = 2.0
"""Timeout per request; a healthy member answers within milliseconds."""

_THREADS = 16
"""More threads than any etcd cluster has members."""

_LIMIT = 1 << 20
"""Largest response, in bytes; a member takes some 200."""

_LIST = "/v3/cluster/member/list"


@frozen
class EtcdMember:
    """
    A member, or a configured URL that belongs to no member.

    @ivar name: The name; empty for a member that never started, and for a URL without a member.
    @ivar url: The client URL; the peer URL of a member that never started.
    @ivar problem: The reason why the member does not take part; L{None} if it does.
    """

    name: str
    url: str
    problem: str | None


def readMembers(urls: Iterable[str]) -> list[EtcdMember]:
    """
    Return all members that etcd or the configuration names.

    @param urls: The client URLs of the configuration.
    """
    given = [each.rstrip("/") for each in urls]
    problems = _problems(given)
    listed: list[dict[str, Any]] = []
    for url in given:
        if problems[url] is None:
            try:
                listed = _request(url, _LIST, {})["members"]
                break
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                problems[url] = _text(error)
    unknown = {
        url for member in listed for url in _urls(member, "clientURLs")[:1] if url not in problems
    }
    problems.update(_problems(unknown))
    members = [_member(each, problems) for each in listed]
    known = {url for each in listed for url in _urls(each, "clientURLs")}
    # An added member that never started has only its peer URL.
    added = {urlsplit(each.url).hostname for each in members if not each.name}
    members += [
        EtcdMember("", url, problems[url] or ("is no member" if listed else None))
        for url in given
        if url not in known and urlsplit(url).hostname not in added
    ]
    return sorted(members, key=lambda each: (each.name, each.url))


def _member(found: Mapping[str, Any], problems: Mapping[str, str | None]) -> EtcdMember:
    clients = _urls(found, "clientURLs")
    if not clients:
        # A member reports its name and its client URLs when it starts.
        peers = _urls(found, "peerURLs")
        return EtcdMember("", peers[0] if peers else "", "was added but never started")
    url = next((each for each in clients if each in problems), clients[0])
    return EtcdMember(str(found.get("name", "")), url, problems.get(url))


def _urls(member: Mapping[str, Any], name: str) -> list[str]:
    return [str(each).rstrip("/") for each in member.get(name) or ()]


def _problems(urls: Iterable[str]) -> dict[str, str | None]:
    """Query the health of members in parallel: an unreachable member takes the whole timeout."""
    asked = list(urls)
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), _THREADS)) as pool:
        return dict(zip(asked, pool.map(_problem, asked), strict=True))


def _problem(url: str) -> str | None:
    try:
        health = _request(url, "/health")
        return None if health["health"] == "true" else f"is unhealthy {health.get('reason', '')}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        return _text(error)


def _request(url: str, path: str, message: Mapping[str, Any] | None = None) -> Any:
    """Send a request, a POST if it has a message; return the document of the response."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    else:
        connection = HTTPConnection(host, port, timeout=_SECONDS)
    try:
        body = None if message is None else json.dumps(message)
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        content = response.read(_LIMIT)
        # A member without a leader answers 503 with a document.
        if response.status not in (200, 503):
            raise HTTPException(f"responds with the status {response.status}")
        return json.loads(content)
    finally:
        connection.close()


def _text(error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"does not respond: {error.strerror or error}"
    if isinstance(error, HTTPException) and str(error):
        return str(error)
    return "does not respond like etcd"

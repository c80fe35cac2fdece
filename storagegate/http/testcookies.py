"""The cookies of the test client: what RFC 6265 asks of a client that talks to one host."""

from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

from attrs import frozen

from storagegate.http.fetchheaders import Headers
from storagegate.http.fetchurl import TargetURL


@frozen
class _Cookie:
    name: str
    value: str
    path: str
    secure: bool
    expires: float | None


class CookieJar:
    """
    Keeps cookies by name and path.

    C{Domain} and C{SameSite} are not looked at, for there is one host and no other site. Iterating
    gives the names; C{jar["name"]} the value, as it was sent.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._cookies: dict[tuple[str, str], _Cookie] = {}

    def __getitem__(self, name: str) -> str:
        for cookie in self._alive():
            if cookie.name == name:
                return cookie.value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([cookie.name for cookie in self._alive()])

    def __contains__(self, name: object) -> bool:
        return any(cookie.name == name for cookie in self._alive())

    def __len__(self) -> int:
        return len(self._alive())

    def set(self, name: str, value: str) -> None:
        """Add a cookie for every path."""
        self._cookies[name, "/"] = _Cookie(name, value, "/", False, None)

    def clear(self) -> None:
        """Forget everything."""
        self._cookies.clear()

    def take(self, url: TargetURL, headers: Headers) -> None:
        """Take what a response sets."""
        for line in headers.getSetCookie():
            cookie = self._read(line, url)
            self._cookies.pop((cookie.name, cookie.path), None)
            if cookie.expires is None or cookie.expires > self._now():
                self._cookies[cookie.name, cookie.path] = cookie

    def header(self, url: TargetURL) -> str:
        """Give the value of the Cookie field for a request, longer paths first."""
        path = _pathOf(url)
        sent = [
            cookie
            for cookie in self._alive()
            if _covers(cookie.path, path) and (url.secure or not cookie.secure)
        ]
        sent.sort(key=lambda cookie: -len(cookie.path))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in sent)

    def _alive(self) -> list[_Cookie]:
        now = self._now()
        return [
            cookie
            for cookie in self._cookies.values()
            if cookie.expires is None or cookie.expires > now
        ]

    def _read(self, line: str, url: TargetURL) -> _Cookie:
        pair, *attributes = line.split(";")
        name, _, value = pair.partition("=")
        given = {}
        for attribute in attributes:
            key, _, each = attribute.partition("=")
            given[key.strip().lower()] = each.strip()
        path = given.get("path", "")
        if not path.startswith("/"):
            path = _pathOf(url).rpartition("/")[0] or "/"
        return _Cookie(name.strip(), value.strip(), path, "secure" in given, self._expiry(given))

    def _expiry(self, given: dict[str, str]) -> float | None:
        try:
            if "max-age" in given:
                return self._now() + int(given["max-age"])
            if "expires" in given:
                return parsedate_to_datetime(given["expires"]).timestamp()
        except ValueError:
            # As browsers do: a date that cannot be read is none.
            pass
        return None


def _pathOf(url: TargetURL) -> str:
    return url.target.partition("?")[0]


def _covers(cookiePath: str, path: str) -> bool:
    if cookiePath == path or cookiePath == "/":
        return True
    return path.startswith(cookiePath.rstrip("/") + "/")

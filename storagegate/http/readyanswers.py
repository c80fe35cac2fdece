"""Answers that an application gives so often that they have a name."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Self

from storagegate.http.errors import HTTPError
from storagegate.http.responseheaders import ResponseHeaders


class ReadyAnswers(ResponseHeaders):
    """Redirects, statuses, and the choice of a representation."""

    def send(self, body: Any = None) -> Self:
        """Send a whole body."""
        raise NotImplementedError

    def sendStatus(self, code: int) -> Self:
        """Send a status with its usual words as the body."""
        return self.status(code).type("txt").send(self.phrase)

    def redirect(self, *arguments: Any) -> Self:
        """
        Send the client to another URL.

        @param arguments: The URL, C{"back"} for where it came from; a status may stand before or
            after it, 302 if none does.
        """
        urls = [each for each in arguments if isinstance(each, str)]
        statuses = [each for each in arguments if not isinstance(each, str)]
        if len(urls) != 1 or len(statuses) > 1:
            raise TypeError("redirect takes a URL, and a status perhaps")
        self.status(statuses[0] if statuses else 302).location(urls[0])
        url = str(self.get("location"))
        text = f"{self.phrase}. Redirecting to "
        self.vary("Accept")
        if self.req.accepts("text", "html") == "html":
            link = escape(url, quote=True)
            return self.type("html").send(f'<p>{text}<a href="{link}">{link}</a></p>')
        return self.type("txt").send(text + url)

    def format(self, choices: Mapping[str, Callable[[], Any]]) -> Any:
        """
        Let the client's C{Accept} choose between representations.

        @param choices: By type or extension, in the order of preference; C{default} for when
            nothing else will do.
        @return: What the chosen function gives.
        @raise HTTPError: 406 if nothing will do and there is no C{default}.
        """
        types = [name for name in choices if name != "default"]
        self.vary("Accept")
        chosen = self.req.accepts(*types) if types else None
        if chosen is not None:
            self.type(chosen)
            return choices[chosen]()
        if "default" in choices:
            return choices["default"]()
        raise HTTPError(406, "Not Acceptable", types=types)

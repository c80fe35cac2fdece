"""What is wrong with a source, told to the operator without filling the log."""

from collections.abc import Callable

from twisted.logger import Logger

from storagegate.core.logtext import escapeField

LOG_SECONDS = 60.0
"""Between two lines about one source: who reads the log in the morning needs no more."""

_MAX_TEXT = 300

_log = Logger()


class Trouble:
    """
    Keeps what is wrong, by whom it is wrong for, and logs it once a minute.
    """

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        """
        @param name: What has the trouble, in the log.
        @param seconds: Gives seconds for measuring.
        """
        self._name = name
        self._seconds = seconds
        self._texts: dict[str, str] = {}
        self._loggedAt = float("-inf")
        self._isLogged = False

    @property
    def problem(self) -> str | None:
        """Tell what is wrong now; C{None} if nothing is."""
        return next((f"{key}: {text}" for key, text in self._texts.items()), None)

    def begin(self, key: str, text: str) -> None:
        """
        Take note that something is wrong.

        @param key: Whom it is wrong for: a service.
        """
        self._texts[key] = escapeField(text)[:_MAX_TEXT]
        if self._seconds() - self._loggedAt >= LOG_SECONDS:
            self._loggedAt = self._seconds()
            self._isLogged = True
            _log.warn("{name}: {problem}", name=self._name, problem=self.problem)

    def end(self, key: str) -> None:
        """Take note that it is not wrong any more."""
        if self._texts.pop(key, None) is not None and not self._texts and self._isLogged:
            self._isLogged = False
            _log.info("{name}: all is well again", name=self._name)

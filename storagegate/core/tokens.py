"""Where a token is, and what it looks like: what the providers of authentication share."""

from collections.abc import Mapping
from typing import Any, Protocol

from storagegate.core.context import RequestContext
from storagegate.core.invocation import CallCredentials

MAX_TOKEN_LENGTH = 8 * 1024
"""Characters of a token or key: as long as a header may be; longer ones are not looked at."""


class Provider(Protocol):
    """Who knows one kind of token."""

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the token or key that this provider decides about; C{None} if there is none."""

    def verify(self, token: str, context: RequestContext) -> Any:
        """
        Find out whose it is.

        @return: The user, or something to wait for that gives it. What is falsy is nobody.
        """


def extracted(extract: Any, protocol: str, credentials: CallCredentials) -> str | None:
    """
    Ask the user's own function where the token is.

    @param extract: C{(native)}, or a mapping of protocols to such functions.
    """
    function = extract.get(protocol) if isinstance(extract, Mapping) else extract
    if function is None:
        return credentials.token
    try:
        token = function(credentials.native)
    except (KeyError, IndexError, AttributeError, TypeError):
        # Functions that look for a token in a message fail where it has none.
        return None
    return token if isinstance(token, str) and token else None


def looksLikeJWT(token: str) -> bool:
    """Tell whether a token has the three parts of a signed one."""
    return token.count(".") == 2

"""API keys, each of which the user's own function knows."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from storagegate.core.context import RequestContext
from storagegate.core.hooks import requestHook
from storagegate.core.invocation import CallCredentials
from storagegate.core.optionvalues import OptionError
from storagegate.core.tokens import extracted


class APIKeyProvider:
    """
    Knows API keys by asking the user's function.

    On HTTP and gRPC a key has a place of its own; elsewhere it stands where a token would.
    """

    def __init__(
        self, validate: Callable[..., Any], header: str = "X-API-Key", extract: Any = None
    ) -> None:
        """
        @param validate: C{(apiKey, context)}, plain or C{async}: gives the user.
        @param header: The name of the field.
        """
        self._validate = requestHook(validate, "apikey.validate", "apiKey", "context")
        self._header = header.lower()
        self._extract = extract

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the key."""
        if self._extract is not None:
            return extracted(self._extract, context.protocol, credentials)
        if context.protocol in ("http", "grpc"):
            if self._header == "x-api-key":
                return credentials.apiKey
            return context.headers.get(self._header)
        return credentials.token

    def verify(self, token: str, context: RequestContext) -> Any:
        """Ask whose it is."""
        return self._validate(token, context)


def staticKeys(keys: Mapping[str, Any]) -> Callable[[str, RequestContext], Any]:
    """
    Make a C{validate} of known keys, each with its user.

    Every key is compared, each in constant time: how long it takes tells nothing.
    """
    known = [(key.encode(), user) for key, user in keys.items()]

    def validate(apiKey: str, context: RequestContext) -> Any:
        found = None
        given = apiKey.encode()
        for key, user in known:
            if hmac.compare_digest(key, given):
                found = user
        return found

    return validate


def readAPIKey(given: Any) -> APIKeyProvider:
    """
    Read the options of the provider C{apikey}.

    @raise OptionError: If they are none.
    """
    name = "authentication.providers.apikey"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    known = {"header", "validate", "extractToken"}
    for key in given:
        if key not in known:
            raise OptionError(f"there is no option {name}.{key}; there are {sorted(known)}")
    header = given.get("header", "X-API-Key")
    if not isinstance(header, str) or not header:
        raise OptionError(f"the option {name}.header is the name of a field")
    if not callable(given.get("validate")):
        raise OptionError(f"the option {name}.validate is a function of (apiKey, context)")
    return APIKeyProvider(given["validate"], header, given.get("extractToken"))

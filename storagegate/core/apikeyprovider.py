"""API keys, each of which the user's own function knows."""

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.context import RequestContext
from storagegate.core.hooks import requestHook
from storagegate.core.invocation import CallCredentials
from storagegate.core.optionvalues import OptionError, makeOptions, readFieldName
from storagegate.core.tokens import extracted, readExtract

HEADER = "x-api-key"
"""Where adapters look for C{CallCredentials.apiKey}; another field is looked up in the context."""


class APIKeyProvider:
    """
    Knows API keys by asking the user's function.

    On HTTP and gRPC a key has a place of its own; elsewhere it stands where a token would.

    @ivar header: The name of that place, as it was written.
    """

    def __init__(
        self, validate: Callable[..., Any], header: str = HEADER, extract: Any = None
    ) -> None:
        """
        @param validate: C{(apiKey, context)}, plain or C{async}: gives the user.
        @param header: The name of the field.
        @param extract: See L{readExtract}.
        """
        self._validate = requestHook(validate, "apikey.validate", "apiKey", "context")
        self.header = header
        self._extract = extract

    def recognises(self, context: RequestContext, credentials: CallCredentials) -> str | None:
        """Give the key."""
        if self._extract is not None:
            key = extracted(self._extract, context.protocol, credentials)
        elif context.protocol not in ("http", "grpc"):
            key = credentials.token
        elif self.header.lower() == HEADER:
            key = credentials.apiKey
        else:
            key = context.headers.get(self.header.lower())
        return key or None

    def verify(self, token: str, context: RequestContext) -> Any:
        """Ask whose it is."""
        return self._validate(token, context)


def staticKeys(keys: Mapping[str, Any]) -> Callable[[str, RequestContext], Any]:
    """
    Make a C{validate} of known keys, each with its user.

    Every key is compared, each in constant time: how long it takes tells nothing.

    @raise ValueError: If a key is empty, or its user is nobody.
    """
    if not all(keys) or not all(keys.values()):
        raise ValueError("every key has text and a user")
    # Digests, because keys of different lengths are not compared in constant time.
    known = [(sha256(key.encode()).digest(), user) for key, user in keys.items()]

    def validate(apiKey: str, context: RequestContext) -> Any:
        found = None
        given = sha256(apiKey.encode("utf-8", "surrogatepass")).digest()
        for digest, user in known:
            if hmac.compare_digest(digest, given):
                found = user
        return found

    return validate


def _readValidate(value: Any) -> Any:
    try:
        requestHook(value, "validate", "apiKey", "context")
    except TypeError:
        raise ValueError("is a function of (apiKey, context)") from None
    return value


@frozen
class APIKeyOptions:
    """
    The options of the provider C{apikey}.

    @ivar validate: C{(apiKey, context)}, plain or C{async}: gives the user, or C{None}.
    @ivar header: The field of HTTP and the metadata of gRPC that a key is in.
    @ivar extractToken: Finds the key elsewhere in the request, message or call of a wire; a
        mapping has one such function for each protocol.
    """

    validate: Callable[..., Any] = field(converter=_readValidate)
    header: str = field(default="X-API-Key", converter=readFieldName)
    extractToken: Any = field(default=None, converter=optional(readExtract))


def readAPIKey(given: Any) -> APIKeyProvider:
    """
    Read the options of the provider C{apikey}, see L{APIKeyOptions}.

    @raise OptionError: If there is no such option, or its value is none.
    """
    name = "authentication.providers.apikey"
    if not isinstance(given, Mapping):
        raise OptionError(f"the option {name} is a mapping")
    options = makeOptions(APIKeyOptions, given, f"{name}.")
    return APIKeyProvider(options.validate, options.header, options.extractToken)

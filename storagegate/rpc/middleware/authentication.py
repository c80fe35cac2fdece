"""Who calls: a token in the metadata C{authorization}, and whoever knows what it is worth."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from storagegate.core.errors import GrpcError, ServiceError
from storagegate.core.hooks import requestHook
from storagegate.core.tokens import bearerToken, noteKind
from storagegate.rpc.middleware.methodnames import methodMatcher

MAX_TOKEN = 8192
"""
Characters of a token: all the metadata that gRPC takes by default, so that a server which is told
to take more does not hand it on to parsers of tokens.
"""

HEALTH = "grpc.health.v1.Health"
"""What balancers and orchestrators ask without a token."""

MISSING = "Missing authorization"
INVALID = "Invalid token"

_log = Logger()


def authentication(
    verify: Callable[..., Any],
    publicMethods: Iterable[str] = (),
    *,
    publicHealth: bool = True,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that lets known callers in, C{UNAUTHENTICATED} refuses all others.

    @param verify: C{verify(token)} or C{verify(token, call)}, plain or a coroutine. It gets the
        first value of C{authorization} without C{Bearer }, and gives the user for C{call.user}.
        Who gives nothing, or raises, refuses. A L{GrpcError} or a L{ServiceError} goes to the
        caller as it is, so that a verifier that is out of order can be C{UNAVAILABLE}.
    @param publicMethods: Who calls one of these is not asked: C{GetUser},
        C{user.UserService/GetUser} or C{user.UserService/*}.
    @param publicHealth: Whether the health service is public, too: probes have no token.
    @raise TypeError: If an option is of the wrong kind.
    @raise ValueError: If C{publicMethods} holds what is no name of a method.
    """
    hook = requestHook(verify, "verify", "token", "call")
    isPublic = methodMatcher(publicMethods, "publicMethods")
    told: set[str] = set()

    def authenticate(call: Any, next: Callable[[], Any]) -> Any:
        if isPublic(call) or (publicHealth and call.service == HEALTH):
            return next()
        token = _tokenOf(call)
        try:
            user = hook(token, call)
        except Exception as error:
            raise _refusal(error, told) from None
        if hasattr(user, "__await__"):
            return authenticateLater(user, call, next)
        return _admit(user, call, next)

    async def authenticateLater(user: Awaitable[Any], call: Any, next: Callable[[], Any]) -> Any:
        try:
            known = await user
        except Exception as error:
            raise _refusal(error, told) from None
        return await _admit(known, call, next)

    return authenticate


def _admit(user: Any, call: Any, next: Callable[[], Any]) -> Any:
    if not user:
        raise GrpcError("UNAUTHENTICATED", INVALID)
    call.user = user
    return next()


def _tokenOf(call: Any) -> str:
    values = call.metadata.get("authorization")
    value: str = values[0].strip() if values else ""
    if not value:
        raise GrpcError("UNAUTHENTICATED", MISSING)
    token = bearerToken(value)
    if not token or len(token) > MAX_TOKEN:
        raise GrpcError("UNAUTHENTICATED", INVALID)
    return token


def _refusal(error: Exception, told: set[str]) -> Exception:
    """
    Give what a caller is told of an exception of a verifier.

    @param told: The kinds that were seen.
    """
    if isinstance(error, GrpcError | ServiceError | CancelledError):
        return error
    noteKind(_log, told, error)
    return GrpcError("UNAUTHENTICATED", INVALID)

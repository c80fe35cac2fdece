"""What becomes of whatever a handler raises."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.errors import asGrpcError, isForeseen

_log = Logger()


def errorHandler(
    onError: Callable[[Exception, Any], Any] | None = None,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that turns errors into statuses.

    A server obeys these rules without it. It is for those who want to see what nobody foresaw, or
    want middleware outside of it to get C{GrpcError} and nothing else::

        GrpcError                          itself
        ServiceError                       the status of its code or its HTTP status
        an error named ValidationError     INVALID_ARGUMENT with its message
        an error named DatabaseError       UNAVAILABLE, logged
        anything else                      INTERNAL "Internal error", logged

    @param onError: C{onError(error, call)}, plain or a coroutine, called with each error that is
        logged. What it gives is not used; what it raises is logged.
    @raise TypeError: If it is no function.
    """
    if onError is not None and not callable(onError):
        raise TypeError(f"onError is a function of (error, call), not {onError!r}")

    async def handleErrors(call: Any, next: Callable[[], Any]) -> Any:
        try:
            return await next()
        except CancelledError:
            # Nobody is left to be told.
            raise
        except Exception as error:
            if not isForeseen(error):
                _log.failure("{path} failed", Failure(error), path=call.path, peer=call.getPeer())
                if onError is not None:
                    await _tell(onError, error, call)
            raise asGrpcError(error) from error

    return handleErrors


async def _tell(onError: Callable[[Exception, Any], Any], error: Exception, call: Any) -> None:
    try:
        told = onError(error, call)
        if hasattr(told, "__await__"):
            await told
    except CancelledError:
        raise
    except Exception:
        _log.failure("onError failed for {path}", path=call.path)

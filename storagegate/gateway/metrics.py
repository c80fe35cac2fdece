"""What a gateway counts of its calls."""

from typing import Any

from attrs import define

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError


@define
class _Totals:
    """
    The calls of one wire.

    @ivar seconds: The time that those took which have ended.
    """

    requests: int = 0
    ended: int = 0
    errors: int = 0
    seconds: float = 0.0


class CallMetrics:
    """An observer that counts calls by the wire that they came by."""

    def __init__(self) -> None:
        self._totals: dict[str, _Totals] = {}

    def began(self, context: RequestContext) -> None:
        """Count a call."""
        totals = self._totals.get(context.protocol)
        if totals is None:
            totals = self._totals[context.protocol] = _Totals()
        totals.requests += 1

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Count its end."""
        totals = self._totals[context.protocol]
        totals.ended += 1
        totals.seconds += seconds
        totals.errors += error is not None

    def snapshot(self) -> dict[str, Any]:
        """
        Give the counts so far.

        @return: Mappings by protocol: C{requests_total}, C{errors_total}, C{active_requests}, and
            C{avg_response_time} in milliseconds.
        """
        totals = self._totals
        return {
            "requests_total": {name: each.requests for name, each in totals.items()},
            "errors_total": {name: each.errors for name, each in totals.items()},
            "active_requests": {name: each.requests - each.ended for name, each in totals.items()},
            "avg_response_time": {
                name: each.seconds * 1000 / each.ended if each.ended else 0.0
                for name, each in totals.items()
            },
        }

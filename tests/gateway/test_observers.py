"""Who is told of calls that are for no method."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.gateway.metrics import CallMetrics, UnknownCalls


class UnknownCallTests(SynchronousTestCase):
    """Calls whose wire knows their context."""

    def test_told(self) -> None:
        """Who logs and who traces is told of such a call as of any; it is counted as one."""
        metrics = CallMetrics()
        metrics.choose()
        told: list[str | None] = []

        class Log:
            def callStarted(self, context: RequestContext) -> None:
                told.append(context.method)

            def callEnded(
                self, context: RequestContext, error: ServiceError | None, seconds: float
            ) -> None:
                told.append(None if error is None else error.code)

        client = ClientInfo("192.0.2.1:5", "192.0.2.1", 5)
        context = RequestContext("grpc", "unknown", "any", client, Tracing("1" * 32))
        unknown = UnknownCalls(metrics, [Log()])
        unknown.callStarted(context)
        unknown.callEnded(context, ServiceError("UNIMPLEMENTED", "no", 501), 0.0)
        self.assertEqual(told, ["any", "UNIMPLEMENTED"])
        families = {each.name: dict(each.samples) for each in metrics.meters.snapshot()}
        expected = {("grpc", "unknown", "unknown", "UNIMPLEMENTED"): 1}
        self.assertEqual(families["storagegate_requests_total"], expected)
        # It took no time that anybody would want to know of.
        self.assertEqual(families["storagegate_request_duration_seconds"], {})

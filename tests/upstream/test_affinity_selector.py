"""Which calls belong together."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.options import changeOptions
from storagegate.net.http.cookies import parseCookies
from storagegate.telemetry.tracecontext import newTracing
from storagegate.upstream.affinity import AffinitySelector, CookieSigner, makeStrategies
from storagegate.upstream.cluster import CallSlot
from storagegate.upstream.options import DiscoveredService, RoutingOptions
from tests.support.balancing import ClusterCase

NAMES = ("a", "b", "c", "d", "e")

STICKY = {"http": {"sticky_sessions": True}}


class ChoosingTests(SynchronousTestCase):
    """Calls of five instances."""

    def make(self, routing: dict[str, Any]) -> None:
        """Make what chooses."""
        options = changeOptions(RoutingOptions(), routing)
        self.strategies = makeStrategies("round_robin", options)
        self.cluster = ClusterCase(*NAMES).cluster
        self.cluster.strategies = self.strategies
        self.choosing = AffinitySelector(
            options, lambda: CookieSigner(b"secret", "Probe"), self.strategies
        )

    def context(self, protocol: str = "http", id: str = "1", **headers: str) -> RequestContext:
        """Make a context."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return RequestContext(
            protocol, "Probe", "ask", ClientInfo(id, "127.0.0.1", 1), newTracing(), named
        )

    def slot(self, context: RequestContext) -> CallSlot:
        """Choose an instance."""
        choosing = self.choosing
        acquiring = self.cluster.acquire(choosing.strategy(context), (), choosing.choose(context))
        slot: CallSlot = self.successResultOf(acquiring)
        choosing.chosen(context, slot)
        return slot

    def ids(self, *contexts: RequestContext) -> set[str]:
        """Choose instances for calls one after the other; give all of them."""
        found = set()
        for context in contexts:
            slot = self.slot(context)
            found.add(slot.member.id)
            slot.end(True)
        return found

    def test_nothing(self) -> None:
        """Where nothing is said of it, calls are one like the other."""
        self.make({})
        contexts = [self.context(x_session_id="s", cookie="a=b") for _ in range(5)]
        self.assertEqual(self.ids(*contexts), set(NAMES))
        self.assertNotIn("setCookie", contexts[0].metadata)

    def test_session(self) -> None:
        """Calls of one session go to one instance, those of many to all; no cookie is set."""
        self.make(STICKY)
        contexts = [self.context(x_session_id="s") for _ in range(9)]
        self.assertEqual(len(self.ids(*contexts)), 1)
        self.assertNotIn("setCookie", contexts[0].metadata)
        many = [self.context(x_session_id=str(at)) for at in range(60)]
        self.assertEqual(self.ids(*many), set(NAMES))

    def test_sessionHeader(self) -> None:
        """The field of the session may have another name."""
        self.make({"http": {"sticky_sessions": True, "session_header": "X-Cart"}})
        self.assertEqual(len(self.ids(*(self.context(x_cart="s") for _ in range(9)))), 1)

    def test_otherWires(self) -> None:
        """Only calls over HTTP have such sessions."""
        self.make(STICKY)
        self.assertEqual(
            self.ids(*(self.context("tcp", x_session_id="s") for _ in NAMES)), set(NAMES)
        )

    def test_cookie(self) -> None:
        """Without a session, the first answer sets a cookie, and calls with it stay together."""
        self.make(STICKY)
        first = self.context()
        [id] = self.ids(first)
        cookie = first.metadata["setCookie"]
        self.assertRegex(
            cookie, r"^storagegate-[0-9a-f]{8}=[0-9a-f]{32}; Path=/; HttpOnly; SameSite=Lax$"
        )
        pair = cookie.partition(";")[0]
        contexts = [self.context(cookie=f"other=1; {pair}") for _ in range(6)]
        self.assertEqual(self.ids(*contexts), {id})
        self.assertNotIn("setCookie", contexts[0].metadata)
        self.assertEqual(self.ids(*(self.context() for _ in NAMES)), set(NAMES))

    def test_gone(self) -> None:
        """When its instance is gone, the call goes to another one, and has a new cookie."""
        self.make(STICKY)
        first = self.context()
        [id] = self.ids(first)
        pair = first.metadata["setCookie"].partition(";")[0]
        left = [member.instance for member in self.cluster.members.values() if member.id != id]
        self.cluster.setInstances(left)
        second = self.context(cookie=pair)
        [other] = self.ids(second)
        named = parseCookies(second.metadata["setCookie"].partition(";")[0])
        self.assertEqual(list(named.values()), [CookieSigner(b"secret", "Probe").sign(other)])

    def test_forged(self) -> None:
        """A cookie without a valid signature is ignored."""
        self.make(STICKY)
        name = CookieSigner(b"secret", "Probe").cookie
        context = self.context(cookie=f"{name}=a")
        self.ids(context)
        self.assertIn("setCookie", context.metadata)

    def test_forgedBusy(self) -> None:
        """A call with such a cookie goes to an instance that has room, as one without."""
        self.make(STICKY)
        self.cluster.options = DiscoveredService(maxConnections=1)
        name = CookieSigner(b"secret", "Probe").cookie
        found = [self.slot(self.context(cookie=f"{name}=a")) for _ in range(2)]
        found[1].end(True)
        # The turn of a, whose call lasts, comes after those of the others.
        found += [self.slot(self.context(cookie=f"{name}=a")) for _ in range(4)]
        self.assertEqual([each.member.id for each in found], ["a", "b", "c", "d", "e", "b"])

    def test_connection(self) -> None:
        """All calls of a WebSocket go to one instance, those of many to all of them."""
        self.make({"websocket": {"connection_affinity": True}})
        for id in map(str, range(4)):
            self.assertEqual(len(self.ids(*(self.context("websocket", id) for _ in range(6)))), 1)
        many = [self.context("websocket", str(at)) for at in range(60)]
        self.assertEqual(self.ids(*many), set(NAMES))
        self.assertEqual(self.ids(*(self.context("tcp", "1") for _ in NAMES)), set(NAMES))

    def test_grpc(self) -> None:
        """Calls by gRPC have a strategy of their own, and an order of their own."""
        self.make({"grpc": {"load_balancing": "least_connections"}})
        busy = self.slot(self.context("http"))
        self.assertEqual(busy.member.id, "a")
        found = [self.slot(self.context("grpc")).member.id for _ in range(4)]
        self.assertEqual(found, ["b", "c", "d", "e"])

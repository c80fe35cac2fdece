"""Consul; no package gives it, so a process that stands in for an agent."""

from typing import Any

from tests.contract import discovery as contract
from tests.support.selection import long
from tests.support.sourceprocess import StandIn, ask


class ConsulTests(contract.ProviderContract):
    """Against the stand-in."""

    provides = "consul"
    # Short, for one may begin to wait just when the source is exchanged for another.
    hurried = {"waitMs": 1_000, **contract.ProviderContract.hurried}

    async def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.source = StandIn(self, self.folder(), "consul")
        await self.source.start()
        self.addCleanup(self.source.kill)

    def address(self) -> dict[str, Any]:
        """Give the options that say where it is."""
        return {"address": self.source.url}

    def put(self, service: str, id: str, host: str, port: int, weight: int = 1) -> None:
        """Register a service."""
        self.register(
            Name=service, ID=f"{service}-{id}", Address=host, Port=port, Weights={"Passing": weight}
        )

    def register(self, **message: Any) -> None:
        """Register a service that passes its check."""
        ask(
            "PUT",
            f"{self.source.url}/v1/agent/service/register",
            {"Check": {"Status": "passing"}, **message},
            {"X-Consul-Token": "right"},
        )

    def remove(self, service: str, id: str) -> None:
        """Deregister it."""
        ask("PUT", f"{self.source.url}/v1/agent/service/deregister/{service}-{id}")

    def written(self, service: str) -> bytes:
        """Give what stands in requests."""
        return f"/service/{service}?".encode()

    async def test_asked(self) -> None:
        """A question says all that the options do, and waits for news after the index it has."""
        self.put("orders-v2", "one", "10.0.0.1", 80)
        _provider, seen = self.provider(
            provider="consul",
            services={"Orders": {"name": "orders-v2"}},
            consul={**self.address(), "datacenter": "dc2", "namespace": "team", "waitMs": 60_000},
        )
        await seen["Orders"].until("10.0.0.1:80")
        await self.see(lambda: len(self.source.asked()) > 2 and "wait" in self.asked()[-1])
        self.assertEqual(
            self.asked(),
            [
                "/v1/health/service/orders-v2?passing=true&dc=dc2&ns=team",
                "/v1/health/service/orders-v2?passing=true&index=11&wait=60000ms&dc=dc2&ns=team",
            ],
        )

    def asked(self) -> list[str]:
        """Give the questions for health."""
        return [each for each in self.source.asked() if each.startswith("/v1/health")]

    async def test_entries(self) -> None:
        """Weights are Consul's, a service without an address is at its node's, tags are obeyed."""
        self.register(Name="A", ID="1", Port=80, Tags=["x", "y"], Weights={"Passing": 7})
        self.register(Name="A", ID="2", Address="10.0.0.2", Port=80, Tags=["x"])
        self.register(Name="A", ID="3", Address="::1", Port=80, Tags=["y", "x"])
        self.register(Name="A", ID="4", Address="a", Port=80, Tags=["x", "y"], Check={})
        _provider, seen = self.provider(
            provider="consul",
            services={"A": "auto-discover"},
            consul={**self.address(), "tags": ["x", "y"]},
        )
        await seen["A"].until("10.9.9.9:80", "[::1]:80")
        self.assertEqual(seen["A"].weights(), {"10.9.9.9:80": 7, "[::1]:80": 1})

    async def test_unreadable(self) -> None:
        """An entry that is nonsense is left out and is a problem; if all are, nothing changes."""
        self.put("A", "one", "10.0.0.1", 80)
        provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80")
        self.put("A", "two", "no/host", 80)
        await self.see(lambda: provider.problem is not None)
        self.assertIn("ignoring an entry", provider.problem)
        self.put("A", "three", "10.0.0.3", 80)
        await seen["A"].until("10.0.0.1:80", "10.0.0.3:80")
        self.remove("A", "one")
        await seen["A"].until("10.0.0.3:80")
        self.remove("A", "three")
        await self.see(lambda: bool(self.counted("storagegate_discovery_failures_total")))
        self.assertEqual(seen["A"].ids, {"10.0.0.3:80"})

    async def test_indexBack(self) -> None:
        """An index that goes back, as of an agent of a new cluster, is begun anew with."""
        self.put("A", "one", "10.0.0.1", 80)
        _provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80")
        self.source.control(index=3)
        await self.see(lambda: sum("index=" not in each for each in self.asked()) == 2)
        self.put("A", "two", "10.0.0.2", 80)
        await seen["A"].until("10.0.0.1:80", "10.0.0.2:80")
        self.assertTrue(any("index=3&" in each for each in self.asked()), self.asked())

    async def test_noIndex(self) -> None:
        """What answers with an index of 0 is not believed."""
        self.put("A", "one", "10.0.0.1", 80)
        provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80")
        self.source.control(services={}, index=0)
        await self.see(lambda: provider.problem is not None)
        self.assertIn("has no index", provider.problem)
        self.assertEqual(seen["A"].ids, {"10.0.0.1:80"})

    @long("takes a second or more")
    async def test_token(self) -> None:
        """The token is that which the file has when it is needed."""
        self.source.control(token="right")
        self.put("A", "one", "10.0.0.1", 80)
        file = self.file("wrong\n")
        provider, seen = self.provider(
            provider="consul",
            services={"A": "auto-discover"},
            consul={**self.address(), "tokenFile": file},
        )
        await self.see(lambda: provider.problem is not None)
        self.assertIn("answers with 403", provider.problem)
        with open(file, "w") as opened:
            opened.write("right\n")
        await seen["A"].until("10.0.0.1:80")

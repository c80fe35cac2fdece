"""Kubernetes; no package gives its API, so a process that stands in for it."""

import os
from typing import Any

from storagegate.upstream import kubernetes
from tests.contract import discovery as contract
from tests.support.certificates import Authority
from tests.support.selection import long
from tests.support.sourceprocess import StandIn, ask


def endpoint(address: str, ready: bool | None = True) -> dict[str, Any]:
    """Make an endpoint; C{ready} as the API has it, C{None} for unknown."""
    return {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}}


class KubernetesCase(contract.DiscoveryCase):
    """What the cases of this file share."""

    provides = "kubernetes"
    settings = contract.ProviderContract.settings
    certificate: Any = None

    async def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.source = StandIn(self, self.folder(), "kubernetes", self.certificate)
        await self.source.start()
        self.addCleanup(self.source.kill)

    def address(self) -> dict[str, Any]:
        """Give the options that say where it is."""
        return {"address": self.source.url, "namespace": "shop"}

    def slice(
        self,
        service: str,
        name: str,
        endpoints: list[Any] | None,
        ports: list[Any] | None,
        kind: str = "IPv4",
    ) -> None:
        """Put a slice."""
        message = {
            "metadata": {"labels": {"kubernetes.io/service-name": service}},
            "addressType": kind,
            "endpoints": endpoints,
            "ports": ports,
        }
        ask("PUT", f"{self.source.url}/standin/slices/{name}", message)

    def put(self, service: str, id: str, host: str, port: int, weight: int = 1) -> None:
        """Put a slice with one endpoint."""
        ports = [{"name": "http", "port": port}]
        self.slice(service, f"{service.lower()}-{id}", [endpoint(host)], ports)

    def remove(self, service: str, id: str) -> None:
        """Delete it."""
        ask("DELETE", f"{self.source.url}/standin/slices/{service.lower()}-{id}")

    def watched(self, *services: str, **more: Any) -> Any:
        """Watch services."""
        return self.provider(
            provider="kubernetes",
            services=dict.fromkeys(services, "auto-discover"),
            kubernetes={**self.settings, **self.address(), **more},
        )

    def asked(self, watches: bool = True) -> list[str]:
        """Give the targets of the watches, or of the lists."""
        asked = [each for each in self.source.asked() if "labelSelector" in each]
        return [each for each in asked if ("watch=true" in each) == watches]


class KubernetesTests(KubernetesCase, contract.ProviderContract):
    """What every provider promises, and what only this one does."""

    def written(self, service: str) -> bytes:
        """Give what stands in requests."""
        # The last character of a service's name is followed by the end of the target or by more.
        return f"service-name%3D{service}".encode()

    async def test_ready(self) -> None:
        """Endpoints count that are ready, or of which that is not known."""
        ports = [{"name": "", "port": 80}]
        found = [endpoint("10.0.0.1"), endpoint("10.0.0.2", False), endpoint("10.0.0.3", None)]
        self.slice("A", "one", [*found, {"addresses": ["10.0.0.4"]}], ports)
        self.slice("A", "two", None, None)
        _provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80", "10.0.0.3:80", "10.0.0.4:80")
        self.slice("A", "one", [endpoint("10.0.0.1", False), endpoint("10.0.0.2")], ports)
        await seen["A"].until("10.0.0.2:80")

    async def test_ports(self) -> None:
        """The port is the only one, that of the name that was configured, or C{http}."""
        many = [{"name": "metrics", "port": 9}, {"name": "http", "port": 80}, {"name": "x"}]
        self.slice("A", "a", [endpoint("10.0.0.1")], many)
        self.slice("B", "b", [endpoint("10.0.0.1")], [{"name": "web", "port": 81}])
        _provider, seen = self.watched("A", "B")
        await seen["A"].until("10.0.0.1:80")
        await seen["B"].until("10.0.0.1:81")
        _other, seen = self.watched("A", "B", portName="metrics")
        await seen["A"].until("10.0.0.1:9")
        await seen["B"].until()

    async def test_secured(self) -> None:
        """A port of HTTPS says so by its protocol, or else by its name; C{http} is preferred."""
        here = [endpoint("10.0.0.1")]
        for service, ports, expected in (
            ("A", [{"name": "web", "port": 1, "appProtocol": "https"}], True),
            ("B", [{"name": "https", "port": 1}, {"name": "metrics", "port": 2}], True),
            ("C", [{"name": "https", "port": 1, "appProtocol": "http"}], None),
            ("D", [{"name": "https", "port": 2}, {"name": "http", "port": 1}], None),
            ("E", [{"port": 1, "appProtocol": "HTTPS"}], True),
            ("F", [{"port": 1}], None),
        ):
            self.slice(service, service.lower(), here, ports)
            _provider, seen = self.watched(service)
            await seen[service].until("10.0.0.1:1")
            self.assertEqual(seen[service].secured(), {"10.0.0.1:1": expected}, service)

    async def test_bothKinds(self) -> None:
        """A pod with addresses of both kinds is one instance; names of hosts are none."""
        ports = [{"port": 80}]
        self.slice("A", "six", [endpoint("fd00::1")], ports, "IPv6")
        self.slice("A", "name", [endpoint("a.example")], ports, "FQDN")
        _provider, seen = self.watched("A")
        await seen["A"].until("[fd00::1]:80")
        self.slice("A", "four", [endpoint("10.0.0.1")], ports)
        await seen["A"].until("10.0.0.1:80")

    async def test_goesOn(self) -> None:
        """A watch that has ended in order goes on from the last version, a bookmark's too."""
        provider, seen = self.watched("A")
        await seen["A"].until()
        await self.see(lambda: len(self.asked()) == 1)
        self.source.control(bookmark=True)
        self.source.control(cut=True)
        await self.see(lambda: len(self.asked()) == 2)
        self.put("A", "one", "10.0.0.1", 80)
        await seen["A"].until("10.0.0.1:80")
        self.assertIn("resourceVersion=10&", self.asked()[0])
        self.assertIn("resourceVersion=11&", self.asked()[1])
        self.assertEqual(len(self.asked(watches=False)), 1)
        self.assertIsNone(provider.problem)

    async def gone(self, late: bool) -> None:
        """Have a version become too old while no watch is open."""
        self.put("A", "one", "10.0.0.1", 80)
        provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80")
        await self.see(lambda: len(self.asked()) == 1)
        self.source.control(compact=True, cut=True, late=late)
        await self.see(lambda: len(self.asked(watches=False)) == 2)
        self.put("A", "two", "10.0.0.2", 80)
        await seen["A"].until("10.0.0.1:80", "10.0.0.2:80")
        self.assertEqual(len(seen["A"].told), 2)
        self.assertEqual(self.counted("storagegate_discovery_failures_total"), {})
        self.assertIsNone(provider.problem)

    @long("takes a second or more")
    async def test_gone(self) -> None:
        """A version that is too old is no problem: there is a list, and a watch of that."""
        await self.gone(late=False)

    @long("takes a second or more")
    async def test_goneLate(self) -> None:
        """The same when it is said in the stream."""
        await self.gone(late=True)

    @long("takes a second or more")
    async def test_token(self) -> None:
        """The token is that which the file has when it is needed."""
        self.source.control(token="right")
        self.put("A", "one", "10.0.0.1", 80)
        file = self.file("wrong\n")
        provider, seen = self.watched("A", tokenFile=file)
        await self.see(lambda: provider.problem is not None)
        self.assertIn("answers with 401: Unauthorized", provider.problem)
        with open(file, "w") as opened:
            opened.write("right")
        await seen["A"].until("10.0.0.1:80")

    async def test_noToken(self) -> None:
        """A file that is not there is a problem that names it."""
        provider, _seen = self.watched("A", tokenFile="/nowhere/token")
        await self.see(lambda: provider.problem is not None)
        self.assertIn("cannot read /nowhere/token: No such file", provider.problem)


class TLSCase(KubernetesCase):
    """An API with a certificate."""

    async def setUp(self) -> None:
        """Start it."""
        self.authority = Authority(self.folder())
        self.certificate = self.issue()
        await super().setUp()

    def issue(self) -> Any:
        """Make its certificate."""
        return self.authority.issue()

    def address(self) -> dict[str, Any]:
        """Give the options that say where it is."""
        address = super().address()
        return {**address, "address": address["address"].replace("http:", "https:")}


class TLSTests(TLSCase):
    """One whose certificate is for its address."""

    async def test_believed(self) -> None:
        """One that the file of certificates vouches for is believed."""
        provider, seen = self.watched(
            "A", tls={"caFile": str(self.authority.path)}, timeoutMs=30_000
        )
        await seen["A"].until()
        self.assertIsNone(provider.problem)

    async def test_stranger(self) -> None:
        """An API without a trusted certificate receives nothing."""
        other = Authority(self.folder(), "other")
        for tls in ({}, {"caFile": str(other.path)}):
            provider, seen = self.watched("A", tls=tls, timeoutMs=30_000)
            await self.see(lambda provider=provider: provider.problem is not None)
            self.assertIn("certificate verify failed", provider.problem)
            self.assertEqual(seen["A"].told, [])

    async def test_noFile(self) -> None:
        """A file without a certificate is a problem that names it."""
        file = self.file("hello")
        provider, _seen = self.watched("A", tls={"caFile": file})
        await self.see(lambda: provider.problem is not None)
        self.assertIn(f"{file} contains no certificate", provider.problem)


class NameTests(TLSCase):
    """One whose certificate has a name, and the address of another machine."""

    def issue(self) -> Any:
        """Make its certificate."""
        return self.authority.issue("api.example", address="127.0.0.2")

    def trust(self, **more: str) -> dict[str, str]:
        """Give options of TLS."""
        return {"caFile": str(self.authority.path), **more}

    async def test_serverName(self) -> None:
        """It is believed by the name that the options say."""
        tls = self.trust(serverName="api.example")
        provider, seen = self.watched("A", tls=tls, timeoutMs=5000)
        await seen["A"].until()
        self.assertIsNone(provider.problem)

    async def test_otherName(self) -> None:
        """Without it, or by another one, it is told nothing."""
        for more in ({}, {"serverName": "other.example"}, {"serverName": "127.0.0.1"}):
            provider, seen = self.watched("A", tls=self.trust(**more), timeoutMs=5000)
            await self.see(lambda provider=provider: provider.problem is not None)
            self.assertIn("the certificate has another name", provider.problem)
            self.assertEqual(seen["A"].told, [])

    async def test_pod(self) -> None:
        """In a pod the name holds beside the certificates that the pod was given."""
        account = self.folder()
        (account / "ca.crt").write_bytes(self.authority.path.read_bytes())
        (account / "token").write_text("right")
        (account / "namespace").write_text("shop")
        self.patch(kubernetes, "SERVICE_ACCOUNT", str(account))
        place = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.source.port),
        }
        self.patch(os, "environ", {**os.environ, **place})
        provider, seen = self.provider(
            provider="kubernetes",
            services={"A": "auto-discover"},
            kubernetes={"tls": {"serverName": "api.example"}},
        )
        await seen["A"].until()
        self.assertIsNone(provider.problem)

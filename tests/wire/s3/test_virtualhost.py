"""Buckets as host names, where a domain is configured."""

from attrs import evolve

from tests.support.s3signer import Answer, Outgoing, Signer, exchange
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

DOMAIN = "s3.example.test"


class VirtualHostTests(S3Case):
    """A daemon below whose domain every host is a bucket."""

    def setUp(self) -> None:
        """Start the daemon."""
        super().setUp()
        data = ownDirectory("domain") / "data"
        self.daemon = makeDaemon(data, STORAGEGATE_S3_DOMAIN=DOMAIN)
        self.addCleanup(self.daemon.kill)
        self.daemon.start()
        self._logStart = 0
        self.address = self.daemon.address()

    def ask(self, host: str, outgoing: Outgoing) -> Answer:
        """Sign a request for a host and send it there."""
        return exchange(self.address, Signer(host).sign(outgoing))

    def test_hosts(self) -> None:
        """A host below the domain is a bucket, with a port or without; the path is the key."""
        host = f"pictures.{DOMAIN}"
        self.assertEqual(self.ask(host, Outgoing("PUT", "/")).status, 200)
        self.assertEqual(self.ask(f"{host}:9000", Outgoing("PUT", "/a/b", {}, b"x")).status, 200)
        got = self.ask(host.upper(), Outgoing("GET", "/a/b"))
        self.assertEqual((got.status, got.body), (200, b"x"))
        listed = self.ask(host, Outgoing("GET", "/?list-type=2"))
        self.assertIn(b"<Key>a/b</Key>", listed.body)

    def test_paths(self) -> None:
        """The domain itself, and an address, still take the bucket from the path."""
        self.assertEqual(self.ask(DOMAIN, Outgoing("PUT", "/by-path")).status, 200)
        host = self.daemon.url().partition("://")[2]
        self.assertEqual(self.ask(host, Outgoing("PUT", "/by-path/k", {}, b"x")).status, 200)
        self.assertEqual(self.ask(f"by-path.{DOMAIN}", Outgoing("GET", "/k")).body, b"x")
        buckets = self.ask(DOMAIN, Outgoing("GET", "/"))
        self.assertIn(b"<Name>by-path</Name>", buckets.body)

    def test_healthChecks(self) -> None:
        """A path of a health check is a key below a bucket's host."""
        self.assertEqual(self.ask(f"checks.{DOMAIN}", Outgoing("PUT", "/")).status, 200)
        for host in (f"checks.{DOMAIN}", f"none.{DOMAIN}", DOMAIN):
            answer = exchange(self.address, Outgoing("GET", "/healthz", {"host": host}))
            self.assertEqual(b"<Code>" not in answer.body, host == DOMAIN, host)

    def test_hostIsSigned(self) -> None:
        """A request that was signed for one bucket is not good for another."""
        self.assertEqual(self.ask(f"one.{DOMAIN}", Outgoing("PUT", "/")).status, 200)
        self.assertEqual(self.ask(f"two.{DOMAIN}", Outgoing("PUT", "/")).status, 200)
        signed = Signer(f"one.{DOMAIN}").sign(Outgoing("PUT", "/k", {}, b"x"))
        moved = evolve(signed, headers={**signed.headers, "host": f"two.{DOMAIN}"})
        self.assertAnswer(exchange(self.address, moved), 403, "SignatureDoesNotMatch")

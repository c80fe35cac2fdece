"""What can be configured of discovery, and what cannot."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.upstream.options import (
    MAX_INSTANCES,
    DiscoveryOptions,
    Instance,
    checkDiscovery,
    distinct,
    readDiscovery,
)


def read(**given: Any) -> DiscoveryOptions:
    """Read options."""
    return readDiscovery(DiscoveryOptions(), given)


class ReadingTests(SynchronousTestCase):
    """Options as a user gives them."""

    def test_services(self) -> None:
        """A service has its instances in a list, or at the provider, and says how it is called."""
        options = read(
            provider="consul",
            services={
                "A": {
                    "strategy": "weighted",
                    "healthCheck": "/h",
                    "instances": [{"host": "10.0.0.1", "port": 80, "weight": 2}],
                    "basePath": "/",
                    "methods": {"get": {"idempotent": True, "timeoutMs": 5}, "list": {}},
                },
                "B": {"instances": "auto-discover", "name": "b-service"},
                "C": "auto-discover",
            },
        )
        a, b, c = (options.services[name] for name in "ABC")
        self.assertEqual(a.instances, (Instance("10.0.0.1", 80, 2, "10.0.0.1:80"),))
        self.assertEqual((a.basePath, b.basePath), ("", "/api"))
        self.assertEqual(a.methods["get"].timeoutMs, 5)
        self.assertEqual(
            (b.instances, b.name, c.instances, c.name), (None, "b-service", None, None)
        )

    def test_groups(self) -> None:
        """Options of a provider that are not named stay what they were."""
        options = read(consul={"datacenter": "one", "tls": {"caFile": "/ca"}})
        options = readDiscovery(options, {"consul": {"tags": ["x"]}, "register": {"tags": ["y"]}})
        options = readDiscovery(options, {"register": {"ttlSeconds": 9}})
        self.assertEqual((options.consul.datacenter, options.consul.tags), ("one", ("x",)))
        self.assertEqual(options.consul.tls.caFile, "/ca")
        assert options.register is not None
        self.assertEqual((options.register.tags, options.register.ttlSeconds), (("y",), 9))

    def test_addresses(self) -> None:
        """Addresses are read with or without what has a default."""
        options = read(
            dns={"resolvers": ["127.0.0.1", "[::1]:5353"]},
            etcd={"addresses": ["https://a:2379/", "http://[::1]"]},
        )
        self.assertEqual(options.dns.resolvers, (("127.0.0.1", 53), ("::1", 5353)))
        self.assertEqual(options.etcd.addresses, ("https://a:2379", "http://[::1]"))

    def test_refused(self) -> None:
        """What is not known, or not right, is refused by its name."""
        instance = {"host": "a", "port": 1}
        for given, expected in (
            ({"provider": "zookeeper"}, "the option provider"),
            ({"consul": {"adress": "x"}}, "there is no option consul.adress"),
            ({"consul": {"tls": {"ca": "x"}}}, "there is no option consul.tls.ca"),
            ({"consul": {"tls": {"serverName": "a_b"}}}, "the option consul.tls.serverName"),
            ({"etcd": {"tls": {"serverName": "a."}}}, "the option etcd.tls.serverName"),
            ({"kubernetes": {"tls": {"serverName": 7}}}, "the option kubernetes.tls.serverName"),
            ({"consul": {"tls": {"verify": False}}}, "there is no option consul.tls.verify"),
            ({"consul": {"token": "x"}}, "there is no option consul.token"),
            ({"consul": {"address": "localhost:8500"}}, "the option consul.address"),
            ({"consul": {"address": "http://a:70000"}}, "the option consul.address"),
            ({"consul": {"address": "http://u:p@a"}}, "the option consul.address"),
            ({"consul": {"address": "http://a/?q"}}, "the option consul.address"),
            ({"consul": {"tags": "x"}}, "the option consul.tags"),
            ({"consul": {"datacenter": "a\nb"}}, "the option consul.datacenter"),
            ({"consul": 1}, "the option consul is a mapping"),
            ({"etcd": {"addresses": []}}, "the option etcd.addresses"),
            ({"etcd": {"prefix": "/"}}, "the option etcd.prefix"),
            ({"dns": {"resolvers": ["name:53"]}}, "the option dns.resolvers"),
            ({"dns": {"minTtlMs": 1}}, "the option dns.minTtlMs"),
            ({"kubernetes": {"namespace": "a/b"}}, "the option kubernetes.namespace"),
            ({"kubernetes": {"tokenFile": ""}}, "the option kubernetes.tokenFile"),
            ({"register": {"ttlSeconds": 1}}, "the option register.ttlSeconds"),
            ({"register": {"services": ["A"]}}, "the option register.services"),
            ({"register": {"address": "a b"}}, "the option register.address"),
            ({"register": True}, "the option register is a mapping"),
            ({"services": {"A": {"instance": []}}}, "there is no option services.A.instance"),
            ({"services": {"A": {"name": "a/b"}}}, "the option services.A.name"),
            ({"services": {"A": {"methods": {"m": {"x": 1}}}}}, "there is no option methods.m.x"),
            ({"services": {"A": {"instances": [{"host": "a"}]}}}, "instances[0].port is missing"),
            ({"services": {"A": {"instances": "static"}}}, "the option services.A.instances"),
            (
                {"services": {"A": {"instances": [instance] * (MAX_INSTANCES + 1)}}},
                "the option services.A.instances has more than",
            ),
            (
                {"services": {"A": {"instances": [{"host": "a/b", "port": 1}]}}},
                "the option instances[0].host",
            ),
            ({"routing": {"http": {"sticky": True}}}, "there is no option routing.http.sticky"),
        ):
            error = self.assertRaises(OptionError, read, **given)
            self.assertIn(expected, str(error), str(given))

    def test_together(self) -> None:
        """Options that do not fit each other are refused once all is said."""
        automatic = {"A": "auto-discover"}
        for given, expected in (
            ({"services": automatic}, "the option services.A.instances"),
            ({"services": automatic, "provider": "static"}, "the option services.A.instances"),
            ({"register": {}}, "the option register needs a provider"),
            ({"register": {}, "provider": "dns"}, "the option register needs a provider"),
            ({"etcd": {"username": "u"}}, "etcd.passwordFile"),
            ({"consul": {"tls": {"certFile": "x"}}}, "the options consul.tls.certFile"),
        ):
            error = self.assertRaises(OptionError, checkDiscovery, read(**given))
            self.assertIn(expected, str(error))
        checkDiscovery(read(provider="etcd", services=automatic, register={}))
        checkDiscovery(read(services={"A": {"instances": []}}))


class InstanceTests(SynchronousTestCase):
    """Instances themselves."""

    def test_id(self) -> None:
        """An instance is known by where it is, unless it has a name."""
        self.assertEqual(Instance("a", 1).id, "a:1")
        self.assertEqual(Instance("::1", 1).id, "[::1]:1")
        self.assertEqual(Instance("a", 1, id="x").id, "x")

    def test_distinct(self) -> None:
        """Of two in one place the first one counts, and the order stays."""
        a, b = Instance("a", 1, 5), Instance("b", 1)
        self.assertEqual(distinct([a, b, Instance("a", 1, 7)]), (a, b))

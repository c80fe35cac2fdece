"""Where options come from, which of them wins, and what is refused."""

import os
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import Configuration, ConfigurationError, load, needRestart
from storagegate.daemon.configkeys import KEYS
from storagegate.objects.issuedkeys import KeyPair


class ConfigurationCase(SynchronousTestCase):
    """What the cases of this file share."""

    def file(self, text: str) -> str:
        """Write a configuration file."""
        path = Path(self.mktemp())
        path.write_text(text)
        return str(path)

    def refused(
        self, flags: dict[str, object] | None = None, environment: dict[str, str] | None = None
    ) -> str:
        """Give the line with which a configuration is refused."""
        error = self.assertRaises(ConfigurationError, load, flags or {}, environment or {})
        line = str(error)
        self.assertEqual(len(line.splitlines()), 1)
        return line


class SourceTests(ConfigurationCase):
    """The four sources and their order."""

    def test_defaults(self) -> None:
        """With nothing said, every option has the documented default."""
        configuration = load({}, {})
        listeners = configuration.listeners
        self.assertEqual(listeners.s3, "tcp:9000:interface=127.0.0.1")
        self.assertEqual(listeners.admin, "tcp:9001:interface=127.0.0.1")
        self.assertEqual(listeners.of("http"), "tcp:8080:interface=127.0.0.1")
        self.assertEqual(listeners.of("grpc"), "127.0.0.1:50051")
        self.assertEqual(listeners.of("tcp"), "tcp:9102:interface=127.0.0.1")
        self.assertEqual(listeners.of("udp"), "127.0.0.1:9103")
        self.assertEqual(configuration.store.directory, "./storagegate-data")
        self.assertEqual(configuration.store.durability, "full")
        self.assertFalse(configuration.store.verifyReads)
        self.assertEqual(configuration.s3.region, "us-east-1")
        self.assertIsNone(configuration.s3.domain)
        self.assertIsNone(configuration.s3.root)
        self.assertEqual(configuration.services, ())
        self.assertEqual(configuration.workers, 1)
        self.assertEqual(configuration.shutdownGraceSeconds, 30)
        self.assertEqual(configuration.logFormat, "text")

    def test_order(self) -> None:
        """A flag wins over a variable, a variable over the file, the file over the default."""
        path = self.file('region = "file"\ns3 = "tcp:1"\nadmin = "tcp:1"\n')
        configuration = load(
            {"config": path, "admin": "tcp:3"},
            {"STORAGEGATE_S3": "tcp:2", "STORAGEGATE_ADMIN": "tcp:2"},
        )
        self.assertEqual(configuration.s3.region, "file")
        self.assertEqual(configuration.listeners.s3, "tcp:2")
        self.assertEqual(configuration.listeners.admin, "tcp:3")

    def test_stateDirectory(self) -> None:
        """Under systemd the data goes to the unit's state directory, unless something is said."""
        environment = {"STATE_DIRECTORY": "/var/lib/storagegate:/var/lib/other"}
        self.assertEqual(load({}, environment).store.directory, "/var/lib/storagegate")
        self.assertEqual(load({"data": "here"}, environment).store.directory, "here")

    def test_variableNames(self) -> None:
        """A key's variable is its name in upper snake case."""
        names = {key.name: key.variable for key in KEYS}
        self.assertEqual(names["s3Domain"], "STORAGEGATE_S3_DOMAIN")
        self.assertEqual(names["shutdownGraceSeconds"], "STORAGEGATE_SHUTDOWN_GRACE_SECONDS")
        self.assertEqual(names["accessKey"], "STORAGEGATE_ACCESS_KEY")

    def test_emptyVariable(self) -> None:
        """An empty variable says nothing."""
        self.assertEqual(load({}, {"STORAGEGATE_REGION": ""}).s3.region, "us-east-1")

    def test_kubernetesVariables(self) -> None:
        """The variables that Kubernetes makes for a service called storagegate stop nothing."""
        load(
            {},
            {
                "STORAGEGATE_SERVICE_HOST": "10.0.0.1",
                "STORAGEGATE_SERVICE_PORT": "9000",
                "STORAGEGATE_SERVICE_PORT_S3": "9000",
                "STORAGEGATE_PORT": "tcp://10.0.0.1:9000",
                "STORAGEGATE_PORT_9000_TCP_ADDR": "10.0.0.1",
            },
        )


class ValueTests(ConfigurationCase):
    """What each kind of value may be."""

    def test_off(self) -> None:
        """Every listener can be switched off."""
        names = ("s3", "admin", "http", "grpc", "tcp", "udp")
        listeners = load(dict.fromkeys(names, "off"), {}).listeners
        self.assertEqual((listeners.s3, listeners.admin), (None, None))
        self.assertEqual(listeners.transports, dict.fromkeys(("http", "grpc", "udp", "tcp")))

    def test_services(self) -> None:
        """Services come as repeated flags, as a variable with commas, and as a list of the file."""
        expected = ("one:A", "two.three:B")
        path = self.file('service = ["one:A", "two.three:B"]\n')
        self.assertEqual(load({"service": ["one:A", "two.three:B"]}, {}).services, expected)
        self.assertEqual(load({}, {"STORAGEGATE_SERVICE": "one:A,two.three:B"}).services, expected)
        self.assertEqual(load({"config": path}, {}).services, expected)

    def test_typedValues(self) -> None:
        """TOML's own numbers and truth values are taken, and text means the same."""
        path = self.file("shutdownGraceSeconds = 5\nverifyReads = true\n")
        for configuration in (
            load({"config": path}, {}),
            load(
                {},
                {
                    "STORAGEGATE_SHUTDOWN_GRACE_SECONDS": "5",
                    "STORAGEGATE_VERIFY_READS": "true",
                },
            ),
        ):
            self.assertEqual(configuration.shutdownGraceSeconds, 5)
            self.assertIs(configuration.store.verifyReads, True)

    def test_rootPair(self) -> None:
        """The two halves of the root key pair may come from different sources."""
        path = self.file('accessKey = "root"\n')
        configuration = load({"config": path}, {"STORAGEGATE_SECRET_KEY": "geheimnis"})
        self.assertEqual(configuration.s3.root, KeyPair("root", "geheimnis"))

    def test_accessLog(self) -> None:
        """A file of the access log has lines, with the options of the table where there is one."""
        self.assertEqual(load({}, {}).gateway, {})
        logged = load({"accessLog": "a.log"}, {})
        self.assertEqual(logged.gateway, {"monitoring": {"logging": {}}})
        path = self.file('accessLog = "a.log"\n[gateway.monitoring.logging]\nformat = "text"\n')
        monitoring = load({"config": path}, {}).gateway["monitoring"]
        self.assertEqual(monitoring, {"logging": {"format": "text"}})

    def test_secretIsNotShown(self) -> None:
        """A configuration that is printed does not show the secret."""
        configuration = load(
            {}, {"STORAGEGATE_ACCESS_KEY": "root", "STORAGEGATE_SECRET_KEY": "geheimnis"}
        )
        self.assertNotIn("geheimnis", repr(configuration))


class RefusalTests(ConfigurationCase):
    """One line that names the key and where it came from."""

    def test_badValues(self) -> None:
        """A bad value is refused wherever it comes from; key and origin are named."""
        bad = {
            "data": "",
            "s3": "",
            "http": "a\nb",
            "grpc": "50051",
            "tcp": "",
            "udp": "127.0.0.1:70000",
            "admin": "\x00",
            "console": "yes",
            "consoleUrl": "https://user@host/",
            "s3Url": "ftp://host/",
            "consoleClearText": "1",
            "service": "justAName",
            "workers": "0",
            "durability": "fast",
            "accessKey": "ab",
            "secretKey": "x" * 129,
            "region": "US East",
            "s3Domain": "-.example",
            "requireSignedPayload": "1",
            "objectOwnership": "Nobody",
            "shutdownGraceSeconds": "1_0",
            "heldBytes": "1kb",
            "reactor": "epoll",
            "logFormat": "xml",
            "logLevel": "loud",
            "accessLog": "",
            "lifecycleDaySeconds": "0",
            "bucketMetrics": "yes",
            "metricsToken": "x",
            "verifyReads": "yes",
            "http2": "2",
            "http2MaxStreams": "1025",
            "gatewayOnS3": "yes",
            "masterKeys": "",
            "encryptAll": "yes",
            "keyCacheSeconds": "0",
            "blockCustomerKeys": "yes",
            "customerKeysOverHTTP": "yes",
        }
        self.assertEqual(set(bad), {key.name for key in KEYS})
        pair = {"STORAGEGATE_ACCESS_KEY": "root", "STORAGEGATE_SECRET_KEY": "geheimnis"}
        for key in KEYS:
            value = bad[key.name]
            quoted = value.encode("unicode_escape").decode().replace("\\x", "\\u00")
            path = self.file(f'{key.name} = "{quoted}"\n')
            others = {name: text for name, text in pair.items() if name != key.variable}
            line = self.refused({"config": path}, others)
            self.assertTrue(line.startswith(f"{key.name} (file {path}): "), line)
            if value:
                line = self.refused({}, {**pair, key.variable: value})
                self.assertTrue(line.startswith(f"{key.name} (variable {key.variable}): "), line)
            line = self.refused({key.name: value}, others)
            self.assertTrue(line.startswith(f"{key.name} (flag --{key.name}): "), line)

    def test_endpoints(self) -> None:
        """A port or an address where an endpoint belongs is refused, with an example of one."""
        for value in ("9000", ":9000", "127.0.0.1:9000", "0.0.0.0:9000", "[::]:9000", "::1"):
            line = self.refused({"s3": value})
            self.assertIn("expected an endpoint such as tcp:9000, or off", line)
        for value in ("tcp:9000", "tcp6:9000", "onion:80", "haproxy:tcp:80", "unix:/run/s3"):
            self.assertEqual(load({"s3": value}, {}).listeners.s3, value)

    def test_wrongTypes(self) -> None:
        """A number where text belongs, or a truth value where a number belongs, is refused."""
        for line in ("workers = true", "workers = 1.0", "region = 1", "s3 = []", "service = [1]"):
            self.assertIn(line.split()[0], self.refused({"config": self.file(line)}))

    def test_unknownKey(self) -> None:
        """An unknown key of the file is named with the file."""
        path = self.file('regoin = "eu"\n')
        self.assertEqual(self.refused({"config": path}), f"'regoin' (file {path}): unknown key")

    def test_unknownVariable(self) -> None:
        """A variable of ours that is misspelt is named."""
        line = self.refused({}, {"STORAGEGATE_REGOIN": "eu"})
        self.assertEqual(line, "STORAGEGATE_REGOIN (variable): unknown key")

    def test_brokenFile(self) -> None:
        """A file that is not TOML is refused with the line of the fault."""
        line = self.refused({"config": self.file("region = \n")})
        self.assertIn("line 1", line)

    def test_missingFile(self) -> None:
        """A file that is not there is refused with its name."""
        self.assertIn("No such file", self.refused({"config": "nowhere.toml"}))
        self.assertIn("nowhere.toml", self.refused({"config": "nowhere.toml"}))

    def test_hugeFile(self) -> None:
        """A file that is no configuration by its size alone is not read whole."""
        self.assertIn("larger", self.refused({"config": self.file("#" * (1 << 20) + "#")}))

    def test_deepFile(self) -> None:
        """A file that nests without end is refused in one line, too."""
        self.refused({"config": self.file("region = " + "[" * 100_000)})

    def test_halfAPair(self) -> None:
        """One half of the root key pair alone is refused; the missing one is named."""
        line = self.refused({}, {"STORAGEGATE_ACCESS_KEY": "root"})
        self.assertTrue(line.startswith("secretKey: missing"), line)
        line = self.refused({}, {"STORAGEGATE_SECRET_KEY": "geheimnis"})
        self.assertTrue(line.startswith("accessKey: missing"), line)
        self.assertNotIn("geheimnis", line)

    def test_secretIsNotRepeated(self) -> None:
        """A secret that is refused is not repeated in the line."""
        secret = "ä" + "geheimnis"
        line = self.refused(
            {}, {"STORAGEGATE_ACCESS_KEY": "root", "STORAGEGATE_SECRET_KEY": secret}
        )
        self.assertNotIn("geheimnis", line)

    def test_longValue(self) -> None:
        """A long bad value does not flood the operator's terminal."""
        self.assertLess(len(self.refused({"durability": "x" * 10_000})), 300)

    @given(st.text())
    def test_anyText(self, text: str) -> None:
        """Whatever a file holds: a configuration, or one line."""
        path = self.file("")
        try:
            Path(path).write_bytes(text.encode("utf-8", "surrogatepass"))
            load({"config": path}, {})
        except ConfigurationError as error:
            self.assertEqual(len(str(error).splitlines()), 1)
        finally:
            os.unlink(path)


class RestartTests(SynchronousTestCase):
    """What a running daemon can change."""

    def test_needRestart(self) -> None:
        """The keys that differ are named unless they can be changed while serving."""

        def with_(**flags: str) -> Configuration:
            return load(dict(flags), {})

        self.assertEqual(needRestart(with_(), with_()), [])
        changed = with_(data="x", durability="os", region="eu", shutdownGraceSeconds="1")
        self.assertEqual(needRestart(with_(), changed), ["data", "durability"])

    def test_reloadableKeys(self) -> None:
        """The keys that reload are these; the documentation says so too."""
        self.assertEqual(
            {key.name for key in KEYS if key.reloads},
            {
                "accessKey",
                "secretKey",
                "region",
                "s3Domain",
                "requireSignedPayload",
                "customerKeysOverHTTP",
                "shutdownGraceSeconds",
                "heldBytes",
                "logFormat",
                "logLevel",
                "objectOwnership",
            },
        )

    def test_keyNames(self) -> None:
        """Keys are camelCase and none comes twice."""
        names = [key.name for key in KEYS]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertTrue(re.fullmatch(r"[a-z][A-Za-z0-9]*", name))


class GatewayTests(SynchronousTestCase):
    """The gateway's tables in the file."""

    def configuration(self, text: str) -> Configuration:
        """Read a file."""
        path = Path(self.mktemp())
        path.write_text(text)
        return load({"config": str(path)}, {})

    def test_tables(self) -> None:
        """They come as they are: the gateway judges them."""
        read = self.configuration('[gateway.websocket]\nallowedOrigins = ["https://a.example"]\n')
        self.assertEqual(read.gateway, {"websocket": {"allowedOrigins": ["https://a.example"]}})
        self.assertEqual(load({}, {}).gateway, {})

    def test_noTable(self) -> None:
        """What is no table is refused."""
        error = self.assertRaises(ConfigurationError, self.configuration, "gateway = 5\n")
        self.assertIn("gateway", str(error))

    def test_noVariable(self) -> None:
        """There is no variable for them."""
        self.assertRaises(ConfigurationError, load, {}, {"STORAGEGATE_GATEWAY": "x"})

    def test_restart(self) -> None:
        """A change takes a restart."""
        before = self.configuration("[gateway.http]\nenableCORS = true\n")
        self.assertEqual(needRestart(before, before), [])
        self.assertEqual(needRestart(before, load({}, {})), ["gateway"])

"""The table C{[cluster]}: what it accepts, what wins, and that no password is repeated."""

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import (
    Configuration,
    ConfigurationError,
    load,
    needRestart,
    portable,
    restore,
)
from storagegate.daemon.configcheck import everyError
from storagegate.daemon.logs import _secretsOf

PASSWORD = "pass-word-1"
CATALOG = f"host=a user=u password={PASSWORD}"


class ClusterTableTests(SynchronousTestCase):
    """The table."""

    def load(self, text: str, **variables: str) -> Configuration:
        """Load a file with a table."""
        self.path = self.mktemp()
        Path(self.path).write_text(f"[cluster]\n{text}")
        environment = {f"STORAGEGATE_CLUSTER_{name}": value for name, value in variables.items()}
        return load({"config": self.path}, environment)

    def refused(self, text: str, **variables: str) -> str:
        """Return the line with which a table is refused, with F for the path of the file."""
        error = self.assertRaises(ConfigurationError, self.load, text, **variables)
        line = str(error).replace(self.path, "F")
        self.assertNotIn(PASSWORD, line)
        self.assertEqual(len(line.splitlines()), 1)
        return line

    def test_absent(self) -> None:
        """Without the table the store is embedded."""
        self.assertIsNone(load({}, {}).cluster)

    def test_empty(self) -> None:
        """
        An empty table is incomplete: a node would otherwise store objects on its own disk. The
        variables of a container may be empty, too.
        """
        expected = "cluster (file F): cluster.catalog is missing; cluster (file F): cluster.blobs"
        for variables in ({}, {"CATALOG": "", "BLOBS": ""}):
            self.assertIn(expected, self.refused("", **variables))
        found = self.load("", CATALOG="host=a", BLOBS="files:/b").cluster
        assert found is not None
        self.assertEqual(found.blobs, "files:/b")

    def test_table(self) -> None:
        """All options of the table are read; sizes may have a unit."""
        found = self.load(
            f'catalog = ["{CATALOG}", "postgresql://u@b/d"]\nblobs = "rados:pool?user=x"\n'
            'counts = "valkey://c"\nleaseSeconds = 5\ninlineLimit = "8kb"\nsynchronous = "off"\n'
        ).cluster
        assert found is not None
        self.assertEqual(found.catalog, (CATALOG, "postgresql://u@b/d"))
        self.assertEqual(found.blobs, "rados:pool?user=x")
        self.assertEqual(found.counts, "valkey://c")
        self.assertEqual((found.leaseSeconds, found.inlineLimit), (5, 8192))
        self.assertEqual(found.synchronous, "off")
        self.assertNotIn(PASSWORD, repr(found))

    def test_defaults(self) -> None:
        """Writes wait for a standby unless that is switched off."""
        found = self.load('catalog = "host=a"\nblobs = "files:/b"').cluster
        assert found is not None
        self.assertEqual((found.counts, found.synchronous), ("postgresql", "required"))
        self.assertEqual((found.leaseSeconds, found.inlineLimit), (10, 16384))

    def test_etcd(self) -> None:
        """The members of etcd, in the file and in the variable; by default none are known."""
        good = 'catalog = "host=a"\nblobs = "files:/b"\n'
        found = self.load(good).cluster
        assert found is not None
        self.assertEqual(found.etcd, ())
        found = self.load(good + 'etcd = ["http://a:2379", "https://b:2379"]').cluster
        assert found is not None
        self.assertEqual(found.etcd, ("http://a:2379", "https://b:2379"))
        found = self.load(good, ETCD="http://a:2379; http://b:2379").cluster
        assert found is not None
        self.assertEqual(found.etcd, ("http://a:2379", "http://b:2379"))

    def test_variables(self) -> None:
        """Variables win over the file, and do without one; several conninfos have semicolons."""
        both = {"CATALOG": "host=x; host=y", "LEASE_SECONDS": "7", "INLINE_LIMIT": "0"}
        found = self.load('catalog = ["host=a"]\nblobs = "files:/b"', **both).cluster
        assert found is not None
        self.assertEqual(found.catalog, ("host=x", "host=y"))
        self.assertEqual((found.blobs, found.leaseSeconds, found.inlineLimit), ("files:/b", 7, 0))
        alone = load(
            {}, {"STORAGEGATE_CLUSTER_CATALOG": "host=x", "STORAGEGATE_CLUSTER_BLOBS": "s3:u"}
        )
        assert alone.cluster is not None
        self.assertEqual(alone.cluster.blobs, "s3:u")

    def test_refused(self) -> None:
        """An option that is unknown, missing or wrong is one line with its name and its origin."""
        good = f'catalog = ["{CATALOG}"]\nblobs = "files:/b"\n'
        self.assertEqual(
            self.refused(f'catalog = ["{CATALOG}"]'), "cluster (file F): cluster.blobs is missing"
        )
        for text, expected in (
            ("block = 1", "there is no option cluster.block; there are ["),
            ("leaseSeconds = 1", "cluster.leaseSeconds is a number of seconds from 2 to 300"),
            ("leaseSeconds = true", "cluster.leaseSeconds is a number of seconds from 2 to 300"),
            ('inlineLimit = "2mb"', "cluster.inlineLimit is a size of at most 1 MiB"),
            ('synchronous = "on"', 'cluster.synchronous is "required" or "off"'),
            (
                'etcd = "x"',
                'cluster.etcd is a list of URLs such as "http://10.0.0.1:2379", but number',
            ),
            ('etcd = ["http://a:b@c:1"]', "cluster.etcd is a list of URLs"),
            (f'counts = "{PASSWORD}"', 'cluster.counts is "postgresql" or "valkey:URL"'),
        ):
            self.assertIn(f"cluster (file F): {expected}", self.refused(good + text))
        self.assertIn(
            "cluster (variable STORAGEGATE_CLUSTER_BLOBS): cluster.blobs is ",
            self.refused(good, BLOBS=f"ftp:{PASSWORD}"),
        )

    def test_conninfo(self) -> None:
        """A conninfo that is none is named by its number; nothing of it is repeated."""
        for wrong in (f'["host=a", "{PASSWORD}"]', f'["host=a", "passwort={PASSWORD}"]'):
            line = self.refused(f'catalog = {wrong}\nblobs = "files:/b"')
            self.assertEqual(
                line,
                "cluster (file F): cluster.catalog is a list of conninfos,"
                " but number 2 is not a conninfo",
            )
        line = self.refused(f'catalog = ["host=a,b password={PASSWORD}"]\nblobs = "files:/b"')
        self.assertIn("number 1 names several", line)
        self.assertIn("1 to 16 conninfos", self.refused('catalog = []\nblobs = "files:/b"'))

    def test_noTable(self) -> None:
        """The doctor says it as well."""
        path = self.mktemp()
        Path(path).write_text("cluster = 1")
        error = f"cluster (file {path}): expected a table"
        self.assertEqual(everyError({"config": path}, {}), [error])

    def test_portable(self) -> None:
        """Workers get the same options."""
        found = self.load(f'catalog = ["{CATALOG}"]\nblobs = "files:/b"\nsynchronous = "off"')
        self.assertEqual(restore(portable(found)).cluster, found.cluster)
        self.assertIsNone(restore(portable(load({}, {}))).cluster)

    def test_restart(self) -> None:
        """A change takes a restart."""
        found = self.load('catalog = "host=a"\nblobs = "files:/b"')
        self.assertEqual(needRestart(load({}, {}), found), ["cluster"])

    def test_hidden(self) -> None:
        """Passwords, and the texts that hold them, are hidden in the log."""
        counts = "valkey:redis://user:other-secret@h"
        found = self.load(f'catalog = ["{CATALOG}"]\nblobs = "files:/b"\ncounts = "{counts}"')
        self.assertEqual(set(_secretsOf(found)), {PASSWORD, CATALOG, "other-secret", counts})


class EmbeddedTests(SynchronousTestCase):
    """A daemon without the table."""

    def test_imports(self) -> None:
        """Its start imports nothing of a cluster, nor the libraries of one, nor HTTP/2."""
        script = (
            "import sys\n"
            "from storagegate.daemon import daemon, gatewayservice, supervisor\n"
            "from storagegate.daemon.components import Components\n"
            "from storagegate.daemon.config import load\n"
            "from storagegate.net.endpoints import chooseReactor\n"
            "options = load({}, {})\n"
            "parts = Components(chooseReactor(None))\n"
            "parts.store(options.store, sys.argv[1])\n"
            "wrong = ('storagegate.cluster', 'psycopg', 'hiredis', 'awscrt.s3',"
            " 'storagegate.net.http2')\n"
            "found = [name for name in sys.modules if name.startswith(wrong)]\n"
            "sys.exit(', '.join(found) or None)\n"
        )
        directory = self.mktemp()
        done = subprocess.run(
            [sys.executable, "-c", script, directory], capture_output=True, text=True, timeout=60
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

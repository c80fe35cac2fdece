"""The charts of deploy/helm: Helm and the schemas accept them, and the daemon reads the files."""

import re
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import Configuration, load
from storagegate.version import __version__
from tests.support.documents import DOCS
from tests.support.helm import helm, template, validate
from tests.support.modules import CHECKOUT
from tests.support.selection import long

CHARTS = CHECKOUT / "deploy" / "helm"

ONE = CHARTS / "storagegate"

NODES = CHARTS / "storagegate-nodes"

ROOT = ("root.accessKey=ACCESS", "root.secretKey=SECRETSECRET")

DEFAULT_GRACE_SECONDS = load({}, {}).shutdownGraceSeconds

CLUSTER = ("catalog={host=a dbname=s,host=b dbname=s}", "blobs=s3:https://blobs.example/bucket")


def valueNames(chart: Path) -> set[str]:
    """Return the names of the values of a chart, with dots between levels."""
    found: set[str] = set()
    outer = ""
    for line in (chart / "values.yaml").read_text().splitlines():
        match = re.match(r"( *)(\w+):", line)
        if match is not None and not match[1]:
            outer = match[2]
            found.add(outer)
        elif match is not None and len(match[1]) == 2:
            found.add(f"{outer}.{match[2]}")
    return found


def objects(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return objects by kind and name."""
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in documents}


class PageTests(SynchronousTestCase):
    """What C{docs/containers.rst} says of the charts."""

    def test_commands(self) -> None:
        """Each command installs a chart that exists, and sets values that the chart has."""
        page = (DOCS / "containers.rst").read_text().replace("\\\n", " ")
        commands = re.findall(r"^ +helm install (\S+) (\S+) (.*)$", page, re.MULTILINE)
        charts = [CHECKOUT / chart for _, chart, _ in commands]
        self.assertEqual(charts, [ONE, NODES])
        for chart, (_, _, flags) in zip(charts, commands, strict=True):
            names = re.findall(r'--set "?([\w.]+)=', flags)
            self.assertGreater(len(names), 3)
            for name in names:
                self.assertIn(name, valueNames(chart))


@long("downloads Helm")
class ChartTests(SynchronousTestCase):
    """Both charts."""

    def configuration(self, text: str) -> Configuration:
        """Read the file of a chart as the daemon does, with the empty variables of the pod."""
        path = Path(self.mktemp())
        path.write_text(text)
        names = ("DATA", "S3", "ADMIN", "HTTP", "GRPC", "TCP", "UDP")
        variables = {f"STORAGEGATE_{name}": "" for name in names}
        return load({"config": str(path)}, variables)

    def test_lint(self) -> None:
        """Helm finds nothing to say of them, and they have the version of the package."""
        for chart, values in ((ONE, ROOT), (NODES, (*ROOT, *CLUSTER))):
            command = [str(helm()), "lint", "--strict", str(chart)]
            for value in values:
                command += ["--set", value]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"appVersion: {__version__}\n", (chart / "Chart.yaml").read_text())

    def test_schemas(self) -> None:
        """Each object fits the schema of Kubernetes, with the defaults and with all values."""
        annotated = ("service.annotations.a=b", "podAnnotations.a=b", "imagePullSecrets[0].name=x")
        for chart, values in (
            (ONE, ()),
            (ONE, (*ROOT, *annotated, "persistence.storageClassName=fast", "listeners.udp=true")),
            (NODES, (*ROOT, *CLUSTER)),
            (NODES, (*CLUSTER, *annotated, "root.existingSecret=x", "blobsSecret=y")),
            (NODES, (*ROOT, *CLUSTER, "initialise=false")),
        ):
            documents = template(chart, values)
            self.assertGreater(len(documents), 2)
            for document in documents:
                validate(document)

    def test_seesMistakes(self) -> None:
        """The schemas refuse an unknown field."""
        service = objects(template(ONE, ()))["Service/test-storagegate"]
        service["spec"]["prots"] = []
        self.assertRaises(AssertionError, validate, service)

    def test_one(self) -> None:
        """The daemon reads the file: the data are on the volume, and UDP is off by default."""
        values = ("workers=2", 'configuration=region = "eu-1"')
        found = objects(template(ONE, values))["ConfigMap/test-storagegate"]
        configuration = self.configuration(found["data"]["storagegate.toml"])
        self.assertEqual(configuration.store.directory, "/data")
        self.assertEqual((configuration.workers, configuration.s3.region), (2, "eu-1"))
        listeners = configuration.listeners
        self.assertEqual((listeners.s3, listeners.of("http")), ("tcp:9000", "tcp:8080"))
        self.assertIsNone(listeners.of("udp"))

    def test_nodes(self) -> None:
        """The node reads the file, with each PostgreSQL and the place of the bytes."""
        found = objects(template(NODES, (*ROOT, *CLUSTER)))
        text = found["Secret/test-storagegate-nodes-configuration"]["stringData"][
            "storagegate.toml"
        ]
        options = self.configuration(text).cluster
        assert options is not None
        self.assertEqual(list(options.catalog), ["host=a dbname=s", "host=b dbname=s"])
        self.assertEqual(options.blobs, "s3:https://blobs.example/bucket")

    def test_refused(self) -> None:
        """A chart that lacks what a node needs says so."""
        for values, missing in (
            (ROOT, "catalog is needed"),
            ((*ROOT, CLUSTER[0]), "blobs is needed"),
            (CLUSTER, "root is needed"),
            ((*CLUSTER, ROOT[0]), "root.secretKey is needed"),
        ):
            error = self.assertRaises(AssertionError, template, NODES, values)
            self.assertIn(missing, str(error))

    def test_containers(self) -> None:
        """No container is root, may write to its image or gain rights; probes ask for health."""
        for chart, values in ((ONE, ROOT), (NODES, (*ROOT, *CLUSTER))):
            for each in template(chart, values):
                if each["kind"] not in ("StatefulSet", "Deployment", "Job"):
                    continue
                pod = each["spec"]["template"]["spec"]
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertFalse(pod["automountServiceAccountToken"])
                # The variables of the chart's own Service would be unknown keys.
                self.assertFalse(pod.get("enableServiceLinks", True))
                [container] = pod["containers"]
                security = container["securityContext"]
                self.assertTrue(security["readOnlyRootFilesystem"])
                self.assertFalse(security["allowPrivilegeEscalation"])
                if each["kind"] != "Job":
                    self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/readyz")
                    self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/healthz")
                    [_, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
                    limit = pod["terminationGracePeriodSeconds"]
                    self.assertGreater(limit, int(seconds) + DEFAULT_GRACE_SECONDS)

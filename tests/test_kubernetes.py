"""The files of C{deploy/kubernetes}, without a cluster of Kubernetes."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import skipUnless

import yaml
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import load
from storagegate.daemon.configkeys import KEYS
from tests.support.selection import long
from tests.support.units import DEPLOY, dockerSteps

FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))

VERSIONS = ("1.30", "1.37")
"""The oldest and the newest whose schemas are checked."""


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def podOf(path: Path) -> dict[str, Any]:
    """Return the specification of the pods of a file."""
    [found] = [
        each for each in documents(path) if "template" in each["spec" if "spec" in each else "data"]
    ]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def imageVariables() -> dict[str, str]:
    """Return the variables that the image sets."""
    [environment] = [rest for step, rest in dockerSteps(DEPLOY / "Containerfile") if step == "ENV"]
    return dict(item.split("=", 1) for item in environment.split())


@long("a check of CI")
class KubernetesTests(SynchronousTestCase):
    """The files."""

    @skipUnless(find_spec("kubernetes_validate"), "kubernetes-validate is not installed")
    def test_schemas(self) -> None:
        """Each object is one of Kubernetes, without a key that it does not know."""
        import kubernetes_validate

        self.assertEqual(len(FILES), 2)
        for path in FILES:
            for each in documents(path):
                for version in VERSIONS:
                    kubernetes_validate.validate(each, version, strict=True)
            wrong = documents(path)[0]
            wrong["spec" if "spec" in wrong else "metadata"]["replicaz"] = 1
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)

    def test_restricted(self) -> None:
        """Pods run as the user of the image, without rights, and write nothing but volumes."""
        [account] = [rest for step, rest in dockerSteps(DEPLOY / "Containerfile") if step == "USER"]
        user, group = map(int, account.split(":"))
        for path in FILES:
            pod = podOf(path)
            context = pod["securityContext"]
            self.assertEqual((context["runAsUser"], context["runAsGroup"]), (user, group))
            self.assertTrue(context["runAsNonRoot"])
            # STORAGEGATE_PORT and the like would stop the daemon.
            self.assertIs(pod["enableServiceLinks"], False)
            for each in (*pod["containers"], *pod.get("initContainers", ())):
                own = each["securityContext"]
                self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                self.assertTrue(own["readOnlyRootFilesystem"])
                self.assertFalse(own["allowPrivilegeEscalation"])
                volumes = {volume["name"] for volume in pod["volumes"]} | {"data"}
                self.assertLessEqual({mount["name"] for mount in each["volumeMounts"]}, volumes)

    def test_probes(self) -> None:
        """Liveness asks whether the process answers, readiness whether it serves."""
        for path in FILES:
            [container] = podOf(path)["containers"]
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            for name, expected in (
                ("startupProbe", "/healthz"),
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
            ):
                self.assertEqual(container[name]["httpGet"], {"path": expected, "port": "admin"})
            liveness = container["livenessProbe"]
            self.assertGreaterEqual(liveness["periodSeconds"] * liveness["failureThreshold"], 60)
            [grace] = [int(key.default) for key in KEYS if key.name == "shutdownGraceSeconds"]
            pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            self.assertGreaterEqual(
                podOf(path)["terminationGracePeriodSeconds"], grace + pause + 15
            )
            variables = imageVariables()
            for port in ports.values():
                self.assertTrue(any(str(port) in each for each in variables.values()), port)
            for each in documents(path):
                if each["kind"] == "Service":
                    named = {port["targetPort"] for port in each["spec"]["ports"]}
                    self.assertLessEqual(named, set(ports))
                    # The admin listener is for probes alone.
                    self.assertNotIn("admin", named)

    def test_configuration(self) -> None:
        """The daemon takes the file of the nodes with the variables of the image and the pod."""
        path = DEPLOY / "kubernetes" / "nodes.yaml"
        [text] = [each["data"] for each in documents(path) if each["kind"] == "ConfigMap"]
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        file = directory / "storagegate.toml"
        file.write_text(text["storagegate.toml"])
        [container] = podOf(path)["containers"]
        variables = imageVariables() | {each["name"]: each["value"] for each in container["env"]}
        given = {
            name: value for name, value in variables.items() if name.startswith("STORAGEGATE_")
        }
        given.pop("STORAGEGATE_CONFIG")
        found = load({"config": str(file)}, given)
        assert found.cluster is not None
        self.assertEqual(len(found.cluster.catalog), 3)
        self.assertEqual(found.listeners.s3, "tcp:9000")
        for name in ("http", "grpc", "tcp", "udp"):
            self.assertIsNone(found.values[name])
        [places] = {tuple(re.findall(r"passfile=(\S+)", each)) for each in found.cluster.catalog}
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        self.assertLessEqual({str(Path(each).parent) for each in places}, mounts)

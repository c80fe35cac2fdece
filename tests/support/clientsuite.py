"""
A program that runs tests of a client's own suite against a server, and prints the results::

    python clientsuite.py minio SOURCES NAME...        functions of minio-py's functional suite
    python clientsuite.py s3transfer SOURCES MODULE... modules of s3transfer's integration suite

The environment has the endpoint and the keys in the form that the suite expects. The last line of
the output is a JSON object: for each test, C{PASS} or its error.
"""

import importlib
import json
import sys
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

Results = dict[str, str]


def runMinio(sources: Path, names: list[str]) -> Results:
    """Run functions of minio-py's suite, whose C{main} prepares the client and the files."""
    sys.path.insert(0, str(sources / "tests" / "functional"))
    suite = importlib.import_module("tests")
    results: Results = {}

    def call(test: Callable[..., None], *args: Any, **options: Any) -> None:
        if test.__name__ not in names:
            return
        try:
            test({}, *args, **options)
        except Exception:
            results[test.__name__] = traceback.format_exc()
        else:
            results[test.__name__] = "PASS"

    suite._call_test = call
    suite.main()
    return results


def runS3transfer(sources: Path, names: list[str]) -> Results:
    """Run modules of s3transfer's suite."""
    sys.path.insert(0, str(sources))
    modules = [f"tests.integration.{name}" for name in names]
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    results: Results = {}

    class Result(unittest.TestResult):
        def addSuccess(self, test: unittest.TestCase) -> None:
            results[test.id()] = "PASS"

    found = Result()
    suite.run(found)
    results.update({str(test): text for test, text in (*found.errors, *found.failures)})
    return results


if __name__ == "__main__":
    run = {"minio": runMinio, "s3transfer": runS3transfer}[sys.argv[1]]
    # The directory of this program would hide the suites' own packages.
    del sys.path[0]
    print(json.dumps(run(Path(sys.argv[2]), sys.argv[3:])))

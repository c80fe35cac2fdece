"""Errors that are none of the catalog's end no thread that writes wait for. Real processes."""

import os

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreBusy
from tests.support.commits import CommitProcesses


class WriterProblemTests(SynchronousTestCase):
    """The process may open no more files when the reserve is to be made."""

    def test_reserve(self) -> None:
        """Writes are refused, the health says why, and both recover by themselves."""
        processes = CommitProcesses(self)
        do = processes.do
        processes.open(0)
        do(0, "createBucket")
        do(0, "put", "k", "1", 100)
        reserve = os.path.join(processes.directory, "reserve")
        self.assertTrue(os.path.exists(reserve))
        do(0, "loseReserve")
        do(0, "limitFiles", 0)
        for _ in range(2):
            with self.assertRaises(StoreBusy):
                do(0, "put", "k", "2", 100)
        self.assertIn("Too many open files", do(0, "health")["catalog"])
        self.assertEqual(do(0, "get", "k"), "1")
        do(0, "limitFiles", -1)
        do(0, "put", "k", "3", 100)
        self.assertTrue(os.path.exists(reserve))
        do(0, "put", "k", "4", 100)
        self.assertIsNone(do(0, "health")["catalog"])
        do(0, "limitFiles", 0)
        do(0, "loseReserve")
        do(0, "close")

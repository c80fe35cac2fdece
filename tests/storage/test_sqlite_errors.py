"""
Every file operation of the store fails once, and from then on.

After each: what was acknowledged is whole, everything else is absent, and after a restart nothing
is on the disk that the catalog does not name.
"""

import errno
from collections.abc import Callable
from functools import partial
from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.errors import StoreBusy, StoreFull, StoreReadOnly
from storagegate.storage.records import VERSIONING_ENABLED
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.model import Model
from tests.support.selection import long, rounds
from tests.support.stores import ALWAYS, StoreDriver, fastDirectory

BIG = bytes(range(256)) * 5000
SMALL = b"a blob of its own" * 20
STEP = rounds(3, 3, soak=1)
"""Each kind of fault strikes every third operation, and each a different third; in a soak all."""

PARTS = [(1, b"first part" * 200), (2, b"second part" * 100)]


class Scenario:
    """A bit of everything, on the store and on the model."""

    def __init__(self, driver: StoreDriver) -> None:
        self.driver = driver
        self.model = Model()
        self.refused = 0
        # Commits that succeeded while the sync of something else failed: they are not acknowledged.
        self.unknown: list[Callable[[], object]] = []

    def run(self) -> None:
        """Do all steps, whatever becomes of each."""
        driver, model = self.driver, self.model
        self.put(b"inline", b"x" * 50)
        self.put(b"small", SMALL)
        self.put(b"big", BIG)
        self.put(b"small", SMALL + b"again")
        if b"big" in model.buckets["b"].objects():
            self.step(
                lambda: driver.copy("b", b"big", b"copy"), lambda: model.copy("b", b"big", b"copy")
            )
        self.delete([b"big", b"missing"])
        for number, body in PARTS:
            self.step(
                partial(driver.putPart, "b", b"parts", "u", number, body),
                partial(model.putPart, "u", number, body),
            )
        if len(model.uploads["u"].parts) == len(PARTS):
            self.step(
                lambda: driver.complete("b", b"parts", "u", PARTS),
                lambda: model.complete("u", [1, 2], ALWAYS),
            )
        self.delete([b"copy"])
        # From here on nothing is replaced: versions pile up, and one goes for good.
        self.step(
            lambda: driver.setVersioning("b", VERSIONING_ENABLED),
            lambda: model.setVersioning("b", VERSIONING_ENABLED),
        )
        self.put(b"small", BIG)
        self.put(b"small", SMALL)
        self.delete([b"small"])
        if len(model.buckets["b"].stacks.get(b"small", ())) > 1:
            oldest = [(b"small", 1)]
            self.step(
                lambda: driver.deleteVersions("b", oldest),
                lambda: model.deleteVersions("b", oldest),
            )

    def put(self, key: bytes, body: bytes) -> None:
        """Store an object."""
        self.step(
            lambda: self.driver.put("b", key, body), lambda: self.model.put("b", key, body, ALWAYS)
        )

    def delete(self, keys: list[bytes]) -> None:
        """Remove objects."""
        self.step(lambda: self.driver.delete("b", keys), lambda: self.model.delete("b", keys))

    def step(self, real: Callable[[], object], model: Callable[[], object]) -> None:
        """Do one step; the model takes it only if the store has acknowledged it."""
        try:
            real()
        except (StoreFull, StoreReadOnly, StoreBusy, OSError) as error:
            self.refused += 1
            if isinstance(error, StoreReadOnly):
                self.unknown.append(model)
        else:
            model()


class NthOperationTests(SynchronousTestCase):
    """The N-th operation fails, for many N; for every N in a soak."""

    def begin(self) -> Scenario:
        """A store with a bucket and an upload, and a model of it."""
        self.files = FaultyFiles()
        self.directory = fastDirectory(self)
        scenario = Scenario(StoreDriver(self.directory, self.files))
        for side in (scenario.driver, scenario.model):
            side.createBucket("b")
        scenario.driver.createUpload("u", "b", b"parts")
        scenario.model.createUpload("u", "b", b"parts")
        return scenario

    def verify(self, scenario: Scenario) -> None:
        """Compare the store with the model."""
        driver, model = scenario.driver, scenario.model
        unknown, scenario.unknown = scenario.unknown, []
        if unknown and driver.versions("b") != model.versions("b"):
            # Only the first can have been begun before the latch was set.
            unknown[0]()
        self.assertEqual(driver.listing("b", b""), model.listing("b", b""))
        self.assertEqual(driver.versions("b"), model.versions("b"))
        for key in (b"inline", b"small", b"big", b"copy", b"parts"):
            self.assertEqual(driver.get("b", key), model.buckets["b"].objects().get(key), key)

    def restart(self, scenario: Scenario) -> None:
        """Open the store again without the fault, and look at everything."""
        driver = scenario.driver
        self.files.arm(None)
        driver.close()
        self.assertEqual(self.files.opened, set())
        driver.open()
        self.verify(scenario)
        self.assertEqual(driver.blobFiles()[1], set())
        driver.put("b", b"after", SMALL)
        driver.close()
        problems: list[str] = []
        self.assertEqual((check(self.directory, False, True, problems.append), problems), (0, []))

    def loop(self, fault: Callable[[int], Fault], first: int = 1) -> int:
        """
        Run the scenario with each fault until one comes too late; return how many did harm.

        @param first: The number of the first operation that fails.
        """
        harmed = 0
        for number in count(first if STEP > 1 else 1, STEP):
            scenario = self.begin()
            self.files.arm(fault(number))
            scenario.run()
            reached = self.files.count >= number
            self.verify(scenario)
            self.restart(scenario)
            harmed += scenario.refused > 0
            if not reached:
                return harmed
        raise AssertionError

    @long("takes seconds")
    def test_errorOnce(self) -> None:
        """An I/O error at any one operation."""
        self.assertGreater(self.loop(lambda n: Fault(n, errno.EIO)), 10)

    @long("takes seconds")
    def test_errorFromThen(self) -> None:
        """I/O errors from any operation on."""
        self.assertGreater(self.loop(lambda n: Fault(n, errno.EIO, sticky=True), 2), 10)

    @long("takes seconds")
    def test_errorThatLands(self) -> None:
        """An I/O error at any one operation that was carried out all the same."""
        self.assertGreater(self.loop(lambda n: Fault(n, errno.EIO, lands=True), 3), 10)

    @long("takes seconds")
    def test_fullOnce(self) -> None:
        """A full disk at any one operation."""
        self.assertGreater(self.loop(lambda n: Fault(n, errno.ENOSPC), 2), 10)

    @long("takes seconds")
    def test_fullFromThen(self) -> None:
        """A full disk from any operation on: deletes go on, for they need no space."""
        taking = frozenset({"create", "write", "sync", "link", "makeDirectory", "syncDirectory"})
        self.assertGreater(
            self.loop(lambda n: Fault(n, errno.ENOSPC, sticky=True, only=taking), 3), 10
        )

    @long("takes seconds")
    def test_shortOnce(self) -> None:
        """A short write harms nobody."""
        self.assertEqual(self.loop(lambda n: Fault(n, 0)), 0)

    def test_shortFromThen(self) -> None:
        """Short writes harm nobody."""
        scenario = self.begin()
        self.files.arm(Fault(1, 0, sticky=True))
        scenario.run()
        self.assertEqual(scenario.refused, 0)
        self.restart(scenario)

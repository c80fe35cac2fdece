"""The brake on guessing."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3 import resource


class FailureThrottleTests(SynchronousTestCase):
    """Failures are counted by source and window."""

    def setUp(self) -> None:
        """Make a throttle on a clock of our own."""
        self.clock = Clock()
        self.throttle = resource.AuthFailureThrottle(self.clock)

    def test_slowedAfterTheFreeOnes(self) -> None:
        """The free failures are answered at once, every further one late; others are unharmed."""
        waits = [self.throttle.failed("a") for _ in range(resource.FREE_FAILURES)]
        self.assertEqual(set(waits), {0.0})
        self.assertEqual(self.throttle.failed("a"), resource.DELAY_SECONDS)
        self.assertEqual(self.throttle.failed("b"), 0.0)

    def test_forgotten(self) -> None:
        """After the window a source is free again."""
        for _ in range(resource.FREE_FAILURES + 1):
            self.throttle.failed("a")
        self.clock.advance(resource.WINDOW_SECONDS + 1)
        self.assertEqual(self.throttle.failed("a"), 0.0)

    def test_bounded(self) -> None:
        """A flood of sources forgets the longest unseen and keeps the recent."""
        for _ in range(resource.FREE_FAILURES + 1):
            self.throttle.failed("early")
        for number in range(resource.SOURCES - 1):
            self.throttle.failed(str(number))
        self.assertEqual(self.throttle.failed("early"), resource.DELAY_SECONDS)
        for number in range(resource.SOURCES):
            self.throttle.failed(str(number))
        self.assertEqual(self.throttle.failed("early"), 0.0)

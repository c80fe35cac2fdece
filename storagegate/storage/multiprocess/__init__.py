"""One store in several processes: shared memory, locks and change messages."""

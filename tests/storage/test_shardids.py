"""The shard of a blob, by its id."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.blobids import SHARDS, blobId, shardOf


class ShardOfTests(SynchronousTestCase):
    """L{shardOf}."""

    def test_made(self) -> None:
        """An id that was made under a lease tells the shard of that lease."""
        for shard in (0, 1, SHARDS - 1):
            for lease in (shard + SHARDS, shard + 1000 * SHARDS):
                for number in (0, 1, 1 << 39):
                    self.assertEqual(shardOf(blobId(lease, number)), shard)

    def test_others(self) -> None:
        """An id of another form, and one of random digits, is in the first shard."""
        for id in ("", "b1", "g" * 32, "1f3c" * 8, blobId(1 << 41, 3), blobId(3, 1 << 41)):
            self.assertEqual(shardOf(id), 0, id)

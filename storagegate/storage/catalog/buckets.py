"""Buckets."""

import msgspec

from storagegate.storage.catalog.transactions import Transaction
from storagegate.storage.errors import BucketExists, BucketNotEmpty, NoSuchBucket
from storagegate.storage.records import Bucket

_decodeBucket = msgspec.json.Decoder(Bucket).decode


def bucketId(transaction: Transaction, name: str) -> int:
    """
    Look up the number of a bucket.

    @raise NoSuchBucket: There is none of that name.
    """
    found: int | None = transaction.value("SELECT id FROM buckets WHERE name = ?", (name,))
    if found is None:
        raise NoSuchBucket
    return found


def createBucket(transaction: Transaction, bucket: Bucket) -> None:
    """
    Create a bucket.

    @raise BucketExists: It is there already.
    """
    there = transaction.value(
        "SELECT json_object('name', name, 'account', account, 'createdMs', createdMs,"
        " 'region', region) FROM buckets WHERE name = ?",
        (bucket.name,),
    )
    if there is not None:
        raise BucketExists(_decodeBucket(there))
    transaction.execute(
        "INSERT INTO buckets (name, account, createdMs, region) VALUES (?, ?, ?, ?)",
        (bucket.name, bucket.account, bucket.createdMs, bucket.region),
    )


def deleteBucket(transaction: Transaction, name: str) -> None:
    """
    Remove a bucket.

    @raise NoSuchBucket: It is not there.
    @raise BucketNotEmpty: It holds objects or uploads.
    """
    number = bucketId(transaction, name)
    if transaction.value(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE bucketId = ?)"
        " OR EXISTS (SELECT 1 FROM uploads WHERE bucketId = ?)",
        (number, number),
    ):
        raise BucketNotEmpty
    transaction.execute("DELETE FROM buckets WHERE id = ?", (number,))

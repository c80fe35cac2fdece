"""What is known of an S3 operation before it runs: a row of the table of operations."""

from enum import Enum

from attrs import frozen

from storagegate.s3.errors import S3Error


class Level(Enum):
    """What a target names."""

    SERVICE = "service"
    BUCKET = "bucket"
    OBJECT = "object"


class Access(Enum):
    """What a request does, as far as the policy of a key cares."""

    READ = "read"
    WRITE = "write"
    LIST = "list"
    ADMIN = "admin"


@frozen
class StaticResponse:
    """
    An answer that is the same whatever the store holds: that of a setting never made.

    @ivar body: The whole document, where the answer is not an error.
    @ivar code: The error's code, where it is one.
    @ivar message: The error's sentence, where it is not the usual one.
    """

    body: bytes = b""
    code: str = ""
    message: str | None = None

    def give(self, bucket: str) -> bytes:
        """
        Answer; the caller has found that the bucket (and the object) is there.

        @raise S3Error: Where the answer is an error.
        """
        if self.code:
            raise S3Error(self.code, self.message, fields={"BucketName": bucket})
        return self.body


@frozen
class Operation:
    """
    A row of the table of operations.

    @ivar name: Amazon's name.
    @ivar selector: The query parameter that selects it; C{"inventory&id"} needs C{id} as well.
    @ivar variant: What else tells it from the row of the same method, level and selector.
    @ivar documentLimit: The bytes that the document in the request's body may have; 0 where the
        body is none.
    @ivar takesObject: Whether the body is the data of an object.
    @ivar answer: What is answered whatever the store holds, if anything is.
    """

    name: str
    method: bytes
    level: Level
    access: Access
    selector: str = ""
    variant: str = ""
    documentLimit: int = 0
    takesObject: bool = False
    answer: StaticResponse | None = None


XML: tuple[bytes, bytes] = (b"Content-Type", b"application/xml")

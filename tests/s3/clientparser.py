"""botocore's own reading of S3's answers: what boto3 and aws-cli would see."""

from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import RestXMLParser


@cache
def serviceModel() -> ServiceModel:
    """Load Amazon's own description of S3."""
    return ServiceModel(Loader().load_service_model("s3", "service-2"), "s3")


def parseAnswer(operation: str, body: bytes) -> dict[str, Any]:
    """Parse a successful answer to an operation as botocore does."""
    shape = serviceModel().operation_model(operation).output_shape
    parsed = RestXMLParser().parse({"status_code": 200, "headers": {}, "body": body}, shape)
    del parsed["ResponseMetadata"]
    return dict(parsed)

"""
The services that gRPC itself has defined: health and reflection.

Their messages are described here instead of being compiled from a file: every server has health,
also one that needs no compiler otherwise, which would cost it 7 ms and 6.5 MB. The files are named
as gRPC names them, so that nobody's own C{health.proto} is taken for this one.
"""

import re
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool

from storagegate.rpc.definitions import RPCService, serviceOf

# A message's fields are lines of "type name = number" as in a proto file. A field of a oneof has
# the oneof's name and a colon before it.
_HEALTH = {
    "HealthCheckRequest": ("string service = 1",),
    "HealthCheckResponse": ("HealthCheckResponse.ServingStatus status = 1",),
    "HealthListRequest": (),
    "HealthListResponse": ("repeated HealthListResponse.StatusesEntry statuses = 1",),
}
_HEALTH_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_HEALTH_ENTRY = ("string key = 1", "HealthCheckResponse value = 2")

_REFLECTION = {
    "ServerReflectionRequest": (
        "string host = 1",
        "message_request: string file_by_filename = 3",
        "message_request: string file_containing_symbol = 4",
        "message_request: ExtensionRequest file_containing_extension = 5",
        "message_request: string all_extension_numbers_of_type = 6",
        "message_request: string list_services = 7",
    ),
    "ExtensionRequest": ("string containing_type = 1", "int32 extension_number = 2"),
    "ServerReflectionResponse": (
        "string valid_host = 1",
        "ServerReflectionRequest original_request = 2",
        "message_response: FileDescriptorResponse file_descriptor_response = 4",
        "message_response: ExtensionNumberResponse all_extension_numbers_response = 5",
        "message_response: ListServiceResponse list_services_response = 6",
        "message_response: ErrorResponse error_response = 7",
    ),
    "FileDescriptorResponse": ("repeated bytes file_descriptor_proto = 1",),
    "ExtensionNumberResponse": (
        "string base_type_name = 1",
        "repeated int32 extension_number = 2",
    ),
    "ListServiceResponse": ("repeated ServiceResponse service = 1",),
    "ServiceResponse": ("string name = 1",),
    "ErrorResponse": ("int32 error_code = 1", "string error_message = 2"),
}

_FIELD = re.compile(r"(?:(\w+): )?(repeated )?([\w.]+) (\w+) = (\d+)")
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
}


def healthService() -> RPCService:
    """Make the definition of C{grpc.health.v1.Health}."""
    package = "grpc.health.v1"
    file = _file("grpc/health/v1/health.proto", package, _HEALTH)
    _, response, _, several = file.message_type
    status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(_HEALTH_STATUSES):
        status.value.add(name=name, number=number)
    # This is what a map is in a descriptor.
    entry = several.nested_type.add(name="StatusesEntry")
    entry.options.map_entry = True
    _addFields(entry, package, _HEALTH_ENTRY)
    service = file.service.add(name="Health")
    for name, kind in (("Check", "Check"), ("List", "List"), ("Watch", "Check")):
        service.method.add(
            name=name,
            input_type=f".{package}.Health{kind}Request",
            output_type=f".{package}.Health{kind}Response",
            server_streaming=name == "Watch",
        )
    return _service(file)


def reflectionService(version: str) -> RPCService:
    """
    Make the definition of C{ServerReflection}.

    @param version: C{"v1"} or C{"v1alpha"}, which differ by nothing but this name.
    """
    package = f"grpc.reflection.{version}"
    file = _file(f"grpc/reflection/{version}/reflection.proto", package, _REFLECTION)
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.ServerReflectionRequest",
        output_type=f".{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    return _service(file)


def _file(name: str, package: str, messages: Mapping[str, Iterable[str]]) -> FileDescriptorProto:
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    for messageName, fields in messages.items():
        _addFields(file.message_type.add(name=messageName), package, fields)
    return file


def _addFields(message: DescriptorProto, package: str, fields: Iterable[str]) -> None:
    for text in fields:
        found = _FIELD.fullmatch(text)
        assert found is not None, text
        oneof, repeated, kind, name, number = found.groups()
        field = message.field.add(name=name, number=int(number))
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            # The pool finds out whether this is a message or an enum.
            field.type_name = f".{package}.{kind}"
        if oneof is not None:
            if not message.oneof_decl:
                message.oneof_decl.add(name=oneof)
            field.oneof_index = 0


def _service(file: FileDescriptorProto) -> RPCService:
    # A pool of its own: it is no matter then what else a process has loaded by that name.
    pool = DescriptorPool()
    pool.Add(file)
    (service,) = pool.FindFileByName(file.name).services_by_name.values()
    return serviceOf(service)

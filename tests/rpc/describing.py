"""What descriptors of two sources have in common."""

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto


def described(file: FileDescriptor) -> FileDescriptorProto:
    """
    Give all that a file says on the wire: not its name, options for other languages, nor the names
    in JSON, which follow from the fields' own.
    """
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("name")
    proto.ClearField("options")
    for message in proto.message_type:
        for each in (message, *message.nested_type):
            for field in each.field:
                field.ClearField("json_name")
    return proto

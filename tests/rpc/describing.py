"""What descriptors of two sources have in common."""

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto


def described(file: FileDescriptor) -> FileDescriptorProto:
    """Give all that a file says on the wire: not its name, nor options for other languages."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("name")
    proto.ClearField("options")
    return proto

"""Messages with every kind of field, compiled for the tests of conversion."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from storagegate.rpc.codec import MessageCodec, codecOf

PROTO3 = """
syntax = "proto3";
package kinds;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "old.proto";

enum Color { option allow_alias = true; RED = 0; GREEN = 1; VERT = 1; BLUE = 5; MINUS = -3; }

message Scalars {
  int32 int32_field = 1; sint32 sint32_field = 2; sfixed32 sfixed32_field = 3;
  uint32 uint32_field = 4; fixed32 fixed32_field = 5;
  int64 int64_field = 6; sint64 sint64_field = 7; sfixed64 sfixed64_field = 8;
  uint64 uint64_field = 9; fixed64 fixed64_field = 10;
  float float_field = 11; double double_field = 12; bool bool_field = 13;
  string string_field = 14; bytes bytes_field = 15; Color color_field = 16;
}

message Presence {
  optional int32 a_number = 1; optional string a_text = 2; optional bool a_flag = 3;
  optional Color a_color = 4; optional bytes some_bytes = 5; optional double a_double = 6;
}

message Choice {
  oneof one {
    string text_choice = 1; int32 number_choice = 2; Choice choice = 3; Color color_choice = 4;
    google.protobuf.NullValue null_choice = 5;
  }
  string beside = 6;
}

message Lists {
  repeated int32 numbers = 1; repeated string names = 2; repeated double doubles = 3;
  repeated float floats = 4; repeated bool flags = 5; repeated bytes blobs = 6;
  repeated Color colors = 7; repeated Tree trees = 8; repeated uint64 longs = 9;
  repeated google.protobuf.Timestamp moments = 10; repeated google.protobuf.Value values = 11;
}

message Maps {
  map<string, string> labels = 1; map<int32, string> by_number = 2; map<bool, bytes> by_flag = 3;
  map<uint64, Color> colors = 4; map<string, Tree> trees = 5; map<int64, double> doubles = 6;
  map<string, google.protobuf.Duration> lengths = 7; map<string, float> floats = 8;
}

message Tree {
  string leaf_name = 1; Tree left_tree = 2; repeated Tree many = 3; map<string, Tree> named = 4;
  google.protobuf.Any any_value = 5; map<string, string> tags = 6;
  google.protobuf.Struct struct_value = 7;
}

message Known {
  google.protobuf.Timestamp created_at = 1; google.protobuf.Duration how_long = 2;
  google.protobuf.FieldMask update_mask = 3; google.protobuf.Struct struct_value = 4;
  google.protobuf.Value any_json = 5; google.protobuf.ListValue json_list = 6;
  google.protobuf.Any detail = 7; google.protobuf.Empty nothing = 8;
  google.protobuf.DoubleValue double_value = 9; google.protobuf.FloatValue float_value = 10;
  google.protobuf.Int64Value int64_value = 11; google.protobuf.UInt64Value uint64_value = 12;
  google.protobuf.Int32Value int32_value = 13; google.protobuf.UInt32Value uint32_value = 14;
  google.protobuf.BoolValue bool_value = 15; google.protobuf.StringValue string_value = 16;
  google.protobuf.BytesValue bytes_value = 17; google.protobuf.NullValue a_null = 18;
  optional google.protobuf.NullValue optional_null = 19;
  repeated google.protobuf.StringValue string_values = 20;
}

message Address {
  string address_line_1 = 1; Address home_address = 2; string renamed = 3 [json_name = "outer"];
  string Caps = 4;
}
message Uses { old.Plain plain = 1; Color color = 2; google.protobuf.Any any_value = 3; }
message Update { Address address = 1; google.protobuf.FieldMask mask = 2; }
message Renamed { string inner_name = 1 [json_name = "outer"]; string plain = 2; }
"""

PROTO2 = """
syntax = "proto2";
package old;

enum Size { SMALL = 1; LARGE = 2; }
enum Kind { ZERO = 0; ONE = 1; }

message Needs { required string a_name = 1; optional Needs inner = 2; repeated Needs more = 3; }

message Plain {
  optional string text = 1; repeated string texts = 2; map<string, string> labels = 3;
  optional Size size = 4; optional group Box = 5 { optional int32 width = 1; }
  optional int32 with_default = 6 [default = 7];
  repeated group Item = 7 { optional string name = 1; }
  repeated Size sizes = 8; map<string, Kind> named_kinds = 9;
  repeated Size packed = 10 [packed = true];
  extensions 100 to 199;
}

extend Plain {
  optional int32 extra = 100;
  repeated Size more_sizes = 101;
  optional Needs needs = 102;
  repeated Needs all_needs = 103;
  optional string words = 104;
}

message Many { repeated Plain plain = 1; }
message NeedsSize { required Size size = 1 [default = LARGE]; }
message Holder { extend Plain { optional Holder held = 105; } optional int32 a = 1; }

message Newer { optional string text = 1; optional int32 later = 50; optional Newer inner = 51; }
message Older { optional string text = 1; optional Older inner = 51; }
"""

EDITION = """
edition = "2023";
package fresh;

message Address { string street = 1; }

message Framed {
  Address address = 4 [features.message_encoding = DELIMITED];
  Framed inner = 1 [features.message_encoding = DELIMITED];
  int32 implicit = 2 [features.field_presence = IMPLICIT];
  int32 explicit = 3;
}
"""


def compilePool(**texts: str) -> DescriptorPool:
    """Compile protos, named as the arguments are, into a pool of their own."""
    included = Path(protoc.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / f"{name}.proto").write_text(text)
        result = Path(folder) / "set"
        arguments = [f"-I{folder}", f"-I{included}", "--include_imports"]
        names = [f"{name}.proto" for name in texts]
        assert protoc.main(["", *arguments, f"--descriptor_set_out={result}", *names]) == 0
        files = FileDescriptorSet.FromString(result.read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = compilePool(kinds=PROTO3, old=PROTO2, fresh=EDITION)


def messageClass(name: str, pool: DescriptorPool = POOL) -> Any:
    """Give a class of messages by its full name."""
    return GetMessageClass(pool.FindMessageTypeByName(name))


def codec(name: str) -> MessageCodec:
    """Give the codec of a message by its full name."""
    return codecOf(messageClass(name))

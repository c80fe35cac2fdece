"""Files of several pools, where one name may be that of several files."""

from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from storagegate.rpc.protos import loadProto
from storagegate.rpc.reflection import DescriptorIndex
from tests.support.log import LogCase

HEAD = 'syntax = "proto3";'
COMMON = HEAD + "package common; message Size { int32 width = 1; }"
SERVICE = (
    HEAD + 'package {0}; import "common.proto";'
    "service Service {{ rpc Go(common.Size) returns (Own); }}  message Own {{}}"
)
"""A file whose name is the same in every folder, as people name them."""


def names(files: list[bytes] | None) -> list[str]:
    """Give the names of files, with their packages."""
    assert files is not None
    read = map(FileDescriptorProto.FromString, files)
    return [f"{file.package}:{file.name}" for file in read]


class ServedFilesTests(LogCase):
    """What is found where, and what is said of it."""

    def load(self, package: str, common: str = COMMON, **more: str) -> FileDescriptor:
        """Load a service from a folder of its own."""
        folder = Path(self.mktemp())
        folder.mkdir()
        texts = {"service": SERVICE.format(package), "common": common, **more}
        for name, text in texts.items():
            (folder / f"{name}.proto").write_text(text)
        return loadProto(folder / f"{next(iter(more), 'service')}.proto").file

    def warnings(self) -> list[str]:
        """Give what was said of names."""
        return [text for text in self.logged() if "different files are named" in text]

    def test_oneNameTwice(self) -> None:
        """Two files of one name are both found by what they define, each with its own imports."""
        files = DescriptorIndex([self.load("a"), self.load("b", COMMON.replace("width", "height"))])
        found = files.containing("a.Service")
        self.assertEqual(names(found), ["a:service.proto", "common:common.proto"])
        found = files.containing("b.Own")
        self.assertEqual(names(found), ["b:service.proto", "common:common.proto"])
        assert found is not None
        self.assertIn(b"height", found[1])

    def test_firstWins(self) -> None:
        """By its name, or by what both define, the first one is found; the log names each."""
        files = DescriptorIndex([self.load("a"), self.load("b", COMMON.replace("width", "height"))])
        self.assertEqual(names(files.named("service.proto"))[0], "a:service.proto")
        for found in (files.named("common.proto"), files.containing("common.Size")):
            assert found is not None
            self.assertIn(b"width", found[0])
        self.assertEqual(len(self.warnings()), 2)
        for name in ("service.proto", "common.proto"):
            self.assertTrue(any(name in text for text in self.warnings()), name)

    def test_sameContent(self) -> None:
        """A file that is the same in several pools is nothing to speak of."""
        DescriptorIndex([self.load("a"), self.load("a")])
        self.assertEqual(self.warnings(), [])

    def test_wellKnown(self) -> None:
        """Nor are the files of protobuf itself, which come with each release of it."""
        text = HEAD + 'package opt; import "google/protobuf/descriptor.proto";'
        ours = self.load("a", opt=text)
        theirs = FileDescriptorProto.DESCRIPTOR.file
        self.assertNotEqual(
            ours.pool.FindFileByName(theirs.name).serialized_pb, theirs.serialized_pb
        )
        files = DescriptorIndex([ours, theirs])
        self.assertEqual(self.warnings(), [])
        self.assertIsNotNone(files.named(theirs.name))

    def test_onlyServed(self) -> None:
        """What lies in a pool beside the services, and is not theirs, is not shown."""
        more = self.load("a", other=HEAD + 'package o; import "service.proto"; message M {}')
        files = DescriptorIndex([more.pool.FindFileByName("service.proto")])
        self.assertIsNotNone(files.containing("a.Service"))
        self.assertIsNone(files.containing("o.M"))
        self.assertIsNone(files.named("other.proto"))
        self.assertIsNone(files.extensionNumbers("o.M"))

    def test_extensionsOfAll(self) -> None:
        """The extensions of a message are those of all pools."""
        roots = []
        for number in (130, 120):
            text = 'syntax = "proto2"; package x%d; import "e.proto"; extend e.M { %s = %d; }'
            extending = text % (number, "optional string s", number)
            extended = 'syntax = "proto2"; package e; message M { extensions 100 to 200; }'
            roots.append(self.load("a", x=extending, e=extended))
        files = DescriptorIndex(roots)
        self.assertEqual(files.extensionNumbers("e.M"), [120, 130])
        self.assertEqual(names(files.extending("e.M", 120))[0], "x120:x.proto")
        self.assertIsNone(files.extending("e.M", 121))

    def test_extensionsOfNested(self) -> None:
        """An extension is found though nothing imports its file, also that of a nested message."""
        extended = "message Outer { message M { extensions 100 to 200; } }"
        other = (
            'syntax = "proto2"; package x; import "e.proto";'
            "extend e.Outer.M { optional string s = 130; }"
        )
        root = self.load("a", x=other, e=f'syntax = "proto2"; package e; {extended}')
        files = DescriptorIndex([root.pool.FindFileByName("e.proto")])
        self.assertEqual(names(files.containing("x.s")), ["x:x.proto", "e:e.proto"])
        self.assertEqual(names(files.extending("e.Outer.M", 130)), names(files.named("x.proto")))

    def test_serialisedOnce(self) -> None:
        """A file is serialised once, however often it is asked for."""
        files = DescriptorIndex([self.load("a")])
        first, second = files.named("service.proto"), files.containing("common.Size")
        assert first is not None and second is not None
        self.assertIs(first[1], second[0])

    def test_none(self) -> None:
        """Without services there is nothing."""
        files = DescriptorIndex([])
        self.assertIsNone(files.named("google/protobuf/descriptor.proto"))
        self.assertIsNone(files.containing("google.protobuf.FileDescriptorProto"))
        self.assertIsNone(files.extensionNumbers("google.protobuf.FileOptions"))

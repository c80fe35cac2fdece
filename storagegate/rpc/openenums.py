"""
Message types with open enums in place of closed ones.

Protobuf stores a number that a closed enum lacks apart from the field, among the unknown fields of
the message, and does not let a program set one. On the wire such a field is the same as one of type
C{int32}. So the types that have closed enums are loaded a second time, with C{int32} in their
place; the converters of these fields still use the enum's names.
"""

from functools import lru_cache
from typing import Any

from attrs import define, field
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

_POOLS = 64
"""How many pools have cached types, as many as have cached converters."""


def extensionsOf(descriptor: Any) -> list[FieldDescriptor]:
    """Return the extensions of a message in its pool."""
    if not descriptor.is_extendable:
        return []
    found: list[FieldDescriptor] = descriptor.file.pool.FindAllExtensions(descriptor)
    return found


@define(eq=False)
class OpenTypes:
    """
    The types of one pool with open enums, loaded when they are needed.

    It is also the descriptor database of its own pool.

    @ivar enums: The enums of the fields that have C{int32} in their place, by the full names of the
        fields.
    """

    _source: DescriptorPool
    enums: dict[str, EnumDescriptor] = field(factory=dict)
    # The full names of types that reach no closed enum.
    _plain: set[str] = field(factory=set)
    # The names of the loaded files that extend messages.
    _extending: set[str] = field(factory=set)
    _pool: DescriptorPool | None = None

    def find(self, descriptor: Descriptor) -> Descriptor | None:
        """
        Return the type with open enums; C{None} if the type contains no closed enum.

        @param descriptor: A message type of the source pool.
        """
        if not self._reachesClosedEnum(descriptor):
            return None
        if self._pool is None:
            # The type stubs expect a subclass of DescriptorDatabase.
            database: Any = self
            self._pool = DescriptorPool(database)
        return self._pool.FindMessageTypeByName(descriptor.full_name)

    def loadExtensions(self, descriptor: Descriptor) -> None:
        """
        Load the files that extend a message: a parser skips extensions that its pool lacks.

        Files may be added later, as by an import to the default pool.

        @param descriptor: A message type of this object's pool.
        """
        if self._pool is None or not descriptor.is_extendable:
            return
        source = self._source.FindMessageTypeByName(descriptor.full_name)
        files = {each.file.name for each in extensionsOf(source)}  # type: ignore[attr-defined]
        for name in files - self._extending:
            self._pool.FindFileByName(name)
        self._extending |= files

    def _reachesClosedEnum(self, descriptor: Descriptor) -> bool:
        seen: dict[str, Descriptor] = {}
        waiting = [descriptor]
        while waiting:
            each = waiting.pop()
            if each.full_name in self._plain or each.full_name in seen:
                continue
            seen[each.full_name] = each
            for part in (*each.fields, *extensionsOf(each)):
                if part.enum_type is not None and part.enum_type.is_closed:
                    return True
                if part.message_type is not None:
                    waiting.append(part.message_type)
        self._plain.update(seen)
        return False

    # The interface of DescriptorDatabase

    def FindFileByName(self, name: str) -> Any:
        """Return the file of a name with open enums; C{None} if there is none."""
        try:
            return self._opened(self._source.FindFileByName(name))
        except KeyError:
            return None

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """Return the file that defines a symbol, with open enums; C{None} if there is none."""
        try:
            return self._opened(self._source.FindFileContainingSymbol(symbol))
        except KeyError:
            return None

    def _opened(self, file: Any) -> Any:
        # Imported late: the classes of descriptors take 0.6 MB.
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        opened = FileDescriptorProto.FromString(file.serialized_pb)
        for each in opened.extension:
            self._openField(file.extensions_by_name[each.name], each)
        for part in opened.message_type:
            self._openMessage(file.message_types_by_name[part.name], part)
        return opened

    def _openMessage(self, source: Any, opened: Any) -> None:
        for each in opened.field:
            self._openField(source.fields_by_number[each.number], each)
        for each in opened.extension:
            self._openField(source.extensions_by_name[each.name], each)
        for each in opened.nested_type:
            self._openMessage(source.nested_types_by_name[each.name], each)

    def _openField(self, source: FieldDescriptor, opened: Any) -> None:
        enum = source.enum_type
        if enum is None or not enum.is_closed:
            return
        self.enums[source.full_name] = enum
        opened.type = FieldDescriptor.TYPE_INT32
        # The name of the default value is no number; handlers never see it.
        opened.ClearField("type_name")
        opened.ClearField("default_value")


@lru_cache(_POOLS)
def openTypes(pool: DescriptorPool) -> OpenTypes:
    """Return the cached types of a pool with open enums."""
    return OpenTypes(pool)

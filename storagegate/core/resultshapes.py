"""
Shapes of results with a declared type: a response has only the fields of the type, at every depth.

A handler may return an instance of a subclass, another object, or a mapping with further keys. The
declared type is therefore rebuilt once, when its method or route is defined: each model in it
becomes a msgspec class with the same fields and nothing else. C{msgspec.convert} fills these
classes from attributes and keys. It also checks every value, and runs no code of the models.
"""

import dataclasses
import datetime
import decimal
import enum
import re
import typing
import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs
import msgspec
from msgspec import inspect

_PLAIN: Mapping[type, Any] = {
    inspect.AnyType: Any,
    inspect.NoneType: None,
    inspect.BoolType: bool,
    inspect.MemoryViewType: memoryview,
    inspect.RawType: msgspec.Raw,
    inspect.DateType: datetime.date,
    inspect.TimeDeltaType: datetime.timedelta,
    inspect.UUIDType: uuid.UUID,
    inspect.DecimalType: decimal.Decimal,
    inspect.ExtType: msgspec.msgpack.Ext,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.ByteArrayType: bytearray,
    inspect.DateTimeType: datetime.datetime,
    inspect.TimeType: datetime.time,
}
"""The types of values without parts, by the class that describes them."""

_COLLECTIONS: Mapping[type, tuple[Any, ...]] = {
    inspect.ListType: (list,),
    inspect.SetType: (set,),
    inspect.FrozenSetType: (frozenset,),
    inspect.VarTupleType: (tuple, ...),
}
"""The types of homogeneous collections, with the type arguments after the item."""

_MAPPINGS = frozenset({inspect.DictType, getattr(inspect, "FrozenDictType", inspect.DictType)})

_PARTS = frozenset({"item_type", "key_type", "value_type"})

_MODELS = (
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
)

_NO_NAME = re.compile(r"\W+")

_CONSTANTS = (str, int, float, bytes, type(None), enum.Enum)
"""The types of defaults without fields of their own."""


class _Choice(type):
    """
    The type of a field that holds one of several models, or may be unset.

    L{_chosen} converts its values: msgspec itself would look for the model's tag among the
    attributes of an instance, and reject C{UNSET}.

    @ivar whole: The union of the shapes, and of the other types of the field.
    @ivar shapes: The shape of each model.
    @ivar isOptional: Whether the value may be C{UNSET}.
    """

    whole: Any
    shapes: Mapping[type, Any]
    isOptional: bool

    def __instancecheck__(cls, instance: object) -> bool:
        """Accept the result of L{_chosen}."""
        return True


def _chosen(kind: Any, value: Any) -> Any:
    """
    Convert a value to one of several models: an instance by its class, or by the nearest base class
    that is a member; a mapping by its tag.

    @raise ValueError: If the value fits no model.
    """
    if not isinstance(kind, _Choice):
        if isinstance(kind, type) and isinstance(value, kind):
            return value
        raise ValueError(f"Expected `{getattr(kind, '__name__', kind)}`")
    if value is msgspec.UNSET and kind.isOptional:
        return value
    base = next((each for each in type(value).__mro__ if each in kind.shapes), None)
    try:
        if base is None:
            return msgspec.convert(
                value, kind.whole, from_attributes=not kind.shapes, dec_hook=_chosen
            )
        return fitted(value, kind.shapes[base])
    except msgspec.ValidationError as error:
        # msgspec adds the path to this value.
        raise ValueError(str(error)) from None


def fitted(value: Any, shape: Any) -> Any:
    """
    Convert a result to its shape.

    @param shape: The result of L{makeShape}.
    @raise msgspec.ValidationError: If a field is missing or has the wrong type.
    """
    return msgspec.convert(value, shape, from_attributes=True, dec_hook=_chosen)


def makeShape(declared: Any) -> Any:
    """
    Make the shape of a type.

    @raise TypeError: If msgspec cannot describe the type.
    """
    return _ShapeBuilder(isChoosing=True).of(inspect.type_info(declared))


def describedShape(declared: Any) -> Any:
    """
    Make the type that describes a shape in JSON Schema.

    @raise TypeError: If msgspec cannot describe the type.
    """
    return _ShapeBuilder(isChoosing=False).of(inspect.type_info(declared))


def shapeOfPart(info: Any) -> Any:
    """
    Make the shape of a part of a type, as L{describedShape}.

    @param info: The description of the part by C{msgspec.inspect}.
    """
    return _ShapeBuilder(isChoosing=False).of(info)


@attrs.define(eq=False)
class _ShapeBuilder:
    """
    Rebuilds types.

    @ivar isChoosing: Whether unions of models become a L{_Choice}, which has no JSON Schema.
    """

    isChoosing: bool
    _models: dict[Any, Any] = attrs.field(factory=dict)

    def of(self, info: Any) -> Any:
        """Return the shape of a described type."""
        kind = type(info)
        if kind in _PLAIN:
            return _limited(_PLAIN[kind], info)
        if kind in _COLLECTIONS:
            items = (self.of(info.item_type), *_COLLECTIONS[kind][1:])
            return _limited(_COLLECTIONS[kind][0][items], info)
        if kind in _MAPPINGS:
            return _limited(dict[self.of(info.key_type), self.of(info.value_type)], info)  # type: ignore[misc]
        if kind is inspect.TupleType:
            return tuple[tuple(self.of(each) for each in info.item_types)]  # type: ignore[misc]
        if kind is inspect.UnionType:
            return self._union(info.types)
        if kind is inspect.LiteralType:
            return Literal[tuple(info.values)]
        if kind is inspect.Metadata:
            meta = msgspec.Meta(extra_json_schema=info.extra_json_schema)
            return Annotated[self.of(info.type), meta]
        if isinstance(info, _MODELS):
            return self._model(info)
        # Enumerations, and types that msgspec does not know.
        return info.cls

    def _union(self, infos: Iterable[Any]) -> Any:
        infos = tuple(infos)
        whole = _anyOf(*(self.of(each) for each in infos))
        structs = [each for each in infos if isinstance(each, inspect.StructType)]
        if len(structs) < 2 or not self.isChoosing:
            return whole
        shapes = {_classOf(each.cls): self.of(each) for each in structs}
        return _choice(whole, shapes)

    def _model(self, info: Any) -> Any:
        known = self._models.get(info.cls)
        if known is not None:
            return known
        origin = _classOf(info.cls)
        isArray = isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
        fields = list(info.fields) if isArray else fieldsInOrder(origin, info.fields)
        # A key of a TypedDict may be any text.
        names = [
            each.name if each.name.isidentifier() else f"field_{number}"
            for number, each in enumerate(fields)
        ]
        annotations: dict[str, Any] = {}
        config = getattr(origin, "__struct_config__", None)
        doc = origin.__doc__ or ""
        shape = msgspec.defstruct(
            modelName(info.cls),
            [
                (name, Any, *self._default(each, annotations, name))
                for name, each in zip(names, fields, strict=True)
            ],
            rename={name: each.encode_name for name, each in zip(names, fields, strict=True)},
            # An undocumented dataclass has its signature as __doc__.
            namespace={"__doc__": None if doc.startswith(f"{origin.__name__}(") else doc or None},
            module=origin.__module__,
            tag=getattr(info, "tag", None),
            tag_field=getattr(info, "tag_field", None),
            array_like=isArray,
            omit_defaults=bool(config and config.omit_defaults),
            kw_only=True,
        )
        # Stored before its fields are made: a field may hold the model itself. msgspec reads the
        # annotations when it converts the first value.
        self._models[info.cls] = shape
        for name, each in zip(names, fields, strict=True):
            annotations[name] = self._annotation(each)
        shape.__annotations__ = annotations
        return shape

    def _annotation(self, field: Any) -> Any:
        found = self.of(field.type)
        if field.required:
            return found
        if field.default is None and not isinstance(found, _Choice):
            # The type of a default counts as declared: "note: str = None".
            return _anyOf(found, None)
        if _isUnset(field) and self.isChoosing:
            return _choice(found, {}, isOptional=True)
        return _anyOf(found, msgspec.UnsetType) if _isUnset(field) else found

    def _default(self, field: Any, annotations: Mapping[str, Any], name: str) -> tuple[Any, ...]:
        """Return the default of a field, in the field's shape."""
        if field.required:
            return ()
        if _isUnset(field):
            return (msgspec.UNSET,)
        default, factory = field.default, field.default_factory
        isGiven = default is not msgspec.NODEFAULT
        isHashable = isGiven and getattr(type(default), "__hash__", None) is not None
        if isGiven and (isinstance(default, _CONSTANTS) or (not self.isChoosing and isHashable)):
            return (default,)
        if factory in (list, dict, set):
            return (msgspec.field(default_factory=factory),)

        def make() -> Any:
            return fitted(default if isGiven else factory(), annotations[name])

        return (msgspec.field(default_factory=make),)


def _anyOf(*types: Any) -> Any:
    # Some types do not support the operator.
    found: Any = Union
    return found[types]


def _choice(whole: Any, shapes: Mapping[type, Any], isOptional: bool = False) -> Any:
    return _Choice("Choice", (), {"whole": whole, "shapes": shapes, "isOptional": isOptional})


def _limited(found: Any, info: Any) -> Any:
    """Add the constraints of a type's description."""
    limits = {
        name: value
        for name in info.__struct_fields__
        if name not in _PARTS and (value := getattr(info, name)) is not None
    }
    return Annotated[found, msgspec.Meta(**limits)] if limits else found


def _isUnset(field: Any) -> bool:
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


def _classOf(found: Any) -> Any:
    """Return the class of a model, without the arguments of a generic one."""
    return get_origin(found) or found


def modelName(found: Any) -> str:
    """Return the name of a model in its schema, with the arguments of a generic one."""
    name: str = _classOf(found).__name__
    arguments = "_".join(_NO_NAME.sub("_", _textOf(each)) for each in get_args(found))
    return f"{name}_{arguments}" if arguments else name


def _textOf(found: Any) -> str:
    return found.__name__ if isinstance(found, type) and not get_args(found) else repr(found)


def fieldsInOrder(model: Any, fields: Iterable[Any]) -> list[Any]:
    """
    Return the fields to write, in the order of their declaration.

    @param model: The class, without the arguments of a generic one.
    @param fields: Their descriptions by msgspec.
    """
    if dataclasses.is_dataclass(model):
        names = [each.name for each in dataclasses.fields(model)]
    elif attrs.has(model):
        names = [each.name for each in attrs.fields(model)]
        # Private fields of attrs classes are not written.
        fields = [each for each in fields if not each.name.startswith("_")]
    elif typing.is_typeddict(model):
        names = list(model.__annotations__)
    else:
        return list(fields)
    return sorted(fields, key=lambda each: names.index(each.name))

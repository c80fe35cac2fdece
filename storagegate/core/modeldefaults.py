"""
Defaults of the dataclass instances that msgspec creates.

C{msgspec.convert} does not set a field whose default is a class attribute: the field is read from
the class. Code that reads the attributes of an instance, such as msgspec itself and C{vars},
therefore omits it. A L{Completer} sets these fields.
"""

from collections.abc import Callable, Iterable
from functools import partial
from inspect import getattr_static
from typing import Any, get_origin

from msgspec import NODEFAULT, inspect

Completer = Callable[[Any], None]
"""Sets the defaults in a value, at every depth."""

_MODELS = (inspect.DataclassType, inspect.StructType)
_NAMED = (inspect.TypedDictType, inspect.NamedTupleType)


def completerOf(model: Any) -> Completer | None:
    """
    Make the completer of the values of a type.

    @return: C{None} if no value needs one.
    @raise TypeError: If msgspec cannot describe the type.
    """
    info = inspect.type_info(model)
    needed: set[int] = set()
    # A model may contain itself, so repeat until no further type is found.
    while True:
        before = len(needed)
        _findNeeded(info, needed, set())
        if len(needed) == before:
            break
    return _Completers(needed).of(info) if id(info) in needed else None


def _partsOf(info: Any) -> Iterable[Any]:
    if isinstance(info, (*_MODELS, *_NAMED)):
        return [each.type for each in info.fields]
    if isinstance(info, inspect.UnionType):
        return info.types
    if isinstance(info, inspect.TupleType):
        return info.item_types
    if isinstance(info, inspect.Metadata):
        return [info.type]
    names = ("key_type", "value_type", "item_type")
    return [getattr(info, name) for name in names if hasattr(info, name)]


def _missingDefaults(info: Any) -> list[tuple[str, Callable[[], Any]]]:
    """
    Return the names of fields that msgspec leaves to the class, with functions that make their
    defaults.
    """
    if not isinstance(info, inspect.DataclassType):
        return []
    model = get_origin(info.cls) or info.cls
    found: list[tuple[str, Callable[[], Any]]] = []
    if not model.__dictoffset__:
        # With slots, each field is set on the instance.
        return found
    for each in info.fields:
        if each.required or not hasattr(model, each.name):
            continue
        if hasattr(type(getattr_static(model, each.name)), "__set__"):
            # A descriptor keeps the value, and has its own default.
            continue
        if each.default is not NODEFAULT:
            found.append((each.name, partial(_same, each.default)))
        elif each.default_factory is not NODEFAULT:
            found.append((each.name, each.default_factory))
    return found


def _same(value: Any) -> Any:
    return value


def _findNeeded(info: Any, needed: set[int], above: set[int]) -> None:
    if id(info) in above:
        return
    above.add(id(info))
    parts = _partsOf(info)
    for part in parts:
        _findNeeded(part, needed, above)
    if _missingDefaults(info) or any(id(part) in needed for part in parts):
        needed.add(id(info))


class _Completers:
    """The completers of the parts of a type, each made once."""

    def __init__(self, needed: set[int]) -> None:
        self._needed = needed
        self._known: dict[int, Completer] = {}

    def of(self, info: Any) -> Completer:
        """Return the completer of a described type that needs one."""
        known = self._known.get(id(info))
        if known is not None:
            return known
        made: list[Completer] = []
        # Stored before its parts are made: a part may be the type itself.
        self._known[id(info)] = lambda value: made[0](value)
        made.append(self._make(info))
        self._known[id(info)] = made[0]
        return made[0]

    def _part(self, info: Any) -> Completer | None:
        return self.of(info) if id(info) in self._needed else None

    def _make(self, info: Any) -> Completer:
        if isinstance(info, inspect.Metadata):
            return self.of(info.type)
        if isinstance(info, inspect.UnionType):
            return self._union(info)
        if isinstance(info, _MODELS):
            return self._model(info)
        if isinstance(info, inspect.TypedDictType):
            keys = [(each.name, done) for each in info.fields if (done := self._part(each.type))]

            def completeKeys(value: Any) -> None:
                if not isinstance(value, dict):
                    return
                for name, done in keys:
                    if name in value:
                        done(value[name])

            return completeKeys
        if isinstance(info, inspect.NamedTupleType | inspect.TupleType):
            items = [self._part(part) for part in _partsOf(info)]

            def completeEach(value: Any) -> None:
                if not isinstance(value, tuple):
                    return
                for done, item in zip(items, value, strict=False):
                    if done is not None:
                        done(item)

            return completeEach
        if hasattr(info, "key_type"):
            # Models as keys are rare, and never encoded as models.
            inner = self._part(info.value_type)
            if inner is None:
                return _nothing
            complete = inner

            def completeValues(value: Any) -> None:
                if isinstance(value, dict):
                    for item in value.values():
                        complete(item)

            return completeValues
        ofItem = self.of(info.item_type)

        def completeItems(value: Any) -> None:
            if isinstance(value, list | tuple | set | frozenset):
                for item in value:
                    ofItem(item)

        return completeItems

    def _model(self, info: Any) -> Completer:
        defaults = _missingDefaults(info)
        fields = [(each.name, done) for each in info.fields if (done := self._part(each.type))]

        model = get_origin(info.cls) or info.cls
        count = len(info.fields)

        def complete(value: Any) -> None:
            if type(value) is not model:
                # The default of the field may be None.
                return
            if defaults:
                # Write to __dict__, which also works for a frozen instance.
                present = value.__dict__
                if len(present) < count:
                    for name, make in defaults:
                        if name not in present:
                            present[name] = make()
            for name, done in fields:
                done(getattr(value, name))

        return complete

    def _union(self, info: Any) -> Completer:
        """Return a completer that selects the member of a union by the class of the value."""
        found: dict[Any, Completer] = {}
        for each in info.types:
            done = self._part(each)
            if done is not None:
                each = each.type if isinstance(each, inspect.Metadata) else each
                cls = getattr(each, "cls", None)
                for kind in _CLASSES.get(type(each), (get_origin(cls) or cls,)):
                    found[kind] = done

        def complete(value: Any) -> None:
            done = found.get(type(value))
            if done is not None:
                done(value)

        return complete


_CLASSES: dict[type, tuple[type, ...]] = {
    inspect.TypedDictType: (dict,),
    inspect.DictType: (dict,),
    inspect.ListType: (list,),
    inspect.SetType: (set,),
    inspect.FrozenSetType: (frozenset,),
    inspect.TupleType: (tuple,),
    inspect.VarTupleType: (tuple,),
}
"""The classes of values for type descriptions without a class."""


def _nothing(value: Any) -> None:
    """Do nothing: the value has no missing defaults."""

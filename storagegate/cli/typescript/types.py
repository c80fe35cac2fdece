"""
TypeScript's types of schemas.

Every name and text comes from the definitions of services, which may be anything: a name that is no
identifier is quoted, and no text can end the comment or string that it is in.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
_NUMBER = re.compile(r"(?<=.)_[0-9]+\Z")
_FOREIGN = re.compile(r"[^A-Za-z0-9_$]+", re.ASCII)
# Line ends of JavaScript, other control characters, and characters that change the direction.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")

_KEYWORDS = (
    "any as async await bigint boolean break case catch class const continue debugger declare "
    "default delete do else enum export extends false finally for from function get if "
    "implements import in infer instanceof interface is keyof let module namespace never new "
    "null number object of package private protected public readonly return set static string "
    "super switch symbol this throw true try type typeof undefined unique unknown var void "
    "while with yield"
)
# The globals that a client uses.
_GLOBALS = (
    "AbortController AbortSignal Array AsyncIterable AsyncIterableIterator Error Headers "
    "Iterable JSON Map Math Object Promise Record RequestCredentials Response ReturnType Set "
    "String TextDecoder URLSearchParams WebSocket clearTimeout encodeURIComponent fetch "
    "setTimeout"
)
# The names of the file itself.
_OWN = (
    "CallOptions Client ClientOptions Credential HTTPTransport Lifetime MAX_BUFFERED MAX_LINE "
    "MAX_WAITING Requests Routes ServiceError SocketCall Transport Value WebSocketTransport "
    "createClient current aborted errorOf headersOf joined lines only pause responseError "
    "transportOf"
)
_RESERVED = frozenset(f"{_KEYWORDS} {_GLOBALS} {_OWN}".split())
"""The names that no declaration may have."""

_SCALARS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}

_DEEPEST = 64


def literal(value: Any) -> str:
    """Return a value of JSON as an expression, or as a type that has only this value."""
    # In ASCII, and harmless in a page, too.
    return json.dumps(value, ensure_ascii=True).replace("</", "<\\/")


def key(name: str) -> str:
    """Return a name as the key of an object."""
    return name if _IDENTIFIER.fullmatch(name) else literal(name)


def methodKey(name: str) -> str:
    """Return a name as the key of a method, also where a class gives it another meaning."""
    isPlain = _IDENTIFIER.fullmatch(name) and name not in ("constructor", "__proto__")
    return name if isPlain else f"[{literal(name)}]"


def identifier(name: str) -> str:
    """Return an identifier in PascalCase for a name in any form."""
    words = [word for word in _FOREIGN.split(name) if word]
    found = "".join(word[:1].upper() + word[1:] for word in words) or "Type"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if found in _RESERVED else found


def comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a comment; none for an empty text."""
    # A comment must not end within the text.
    safe = text.replace("*/", "*\\/").strip()
    texts = [_CONTROLS.sub(" ", line).rstrip() for line in safe.splitlines()]
    if len(texts) == 1:
        yield f"{indent}/** {texts[0]} */"
    elif texts:
        yield f"{indent}/**"
        yield from (f"{indent} * {line}".rstrip() for line in texts)
        yield f"{indent} */"


class TypeScriptTypes:
    """
    The types of a file.

    @ivar declarations: The declared types by their names.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """@param taken: Further names that no type may have."""
        self.declarations: dict[str, str] = {}
        self._taken = frozenset(taken)

    def add(
        self,
        schema: Any,
        definitions: Mapping[str, Any],
        place: str,
        name: str,
        isResult: bool = False,
    ) -> str:
        """
        Add the types that a schema refers to, and return the type of its values.

        @param definitions: The schemas that it refers to, by name.
        @param place: The start of the references to them.
        @param name: The name for an object that has none.
        @param isResult: Whether the values are results, in which defaults are filled in.
        """
        own = identifier(name)
        if isinstance(schema, Mapping) and schema.get("properties"):
            # A name that no definition has.
            definitions = {**definitions, f"\0{own}": schema}
            schema = {"$ref": f"{place}\0{own}"}
        names: dict[str, str] = {}
        for each in definitions:
            preferred = _preferred(each)
            names[each] = self._free(preferred, isResult, names.values(), preferred)
        while True:
            writer = _TypeWriter(place, names, definitions, isResult)
            made = {names[each]: writer.declaration(each) for each in definitions}
            changed = [
                each
                for each in definitions
                if self.declarations.get(names[each], made[names[each]]) != made[names[each]]
            ]
            if not changed:
                break
            for each in changed:
                preferred = _preferred(each)
                names[each] = self._free(names[each], isResult, names.values(), preferred, True)
        self.declarations.update(made)
        return writer.typeOf(schema, 0)

    def _free(
        self, name: str, isResult: bool, used: Iterable[str], preferred: str, isTaken: bool = False
    ) -> str:
        """Return a name that may be used: C{Note}, C{NoteInput}, C{Note2}, C{Note3}."""
        candidates = [preferred] if isResult else [preferred, f"{preferred}Input"]
        candidates += [f"{preferred}{number}" for number in range(2, len(self.declarations) + 4)]
        start = candidates.index(name) + 1 if isTaken else 0
        taken = {*used, *self._taken}
        return next(each for each in candidates[start:] if each not in taken)

    def text(self) -> str:
        """Return the declarations in the order of their names."""
        return "\n".join(self.declarations[name] for name in sorted(self.declarations))


def _preferred(definition: str) -> str:
    """Return the preferred name of a definition; OpenAPI numbers those of one name."""
    return identifier(_NUMBER.sub("", definition.removeprefix("\0")))


class _TypeWriter:
    """Writes the types of one set of definitions."""

    def __init__(
        self,
        place: str,
        names: Mapping[str, str],
        definitions: Mapping[str, Any],
        isResult: bool,
    ) -> None:
        self._place = place
        self._names = names
        self._definitions = definitions
        self._isResult = isResult

    def declaration(self, name: str) -> str:
        """Return the declaration of a definition."""
        schema = self._definitions[name]
        own = self._names[name]
        described = schema.get("description", "") if isinstance(schema, Mapping) else ""
        lines = [*comment(str(described))]
        if self._isObject(schema):
            lines.append(f"export interface {own} {self._object(schema, 0)}")
        else:
            lines.append(f"export type {own} = {self.typeOf(schema, 0)};")
        return "".join(f"{line}\n" for line in lines)

    def _isObject(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping) or not schema.get("properties"):
            return False
        further = schema.get("additionalProperties", False)
        return not isinstance(further, Mapping) and not {"anyOf", "oneOf", "allOf"} & schema.keys()

    def typeOf(self, schema: Any, depth: int) -> str:
        """Return the type of the values of a schema."""
        if depth > _DEEPEST or not isinstance(schema, Mapping):
            return "never" if schema is False else "unknown"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._names.get(reference.removeprefix(self._place), "unknown")
        if "const" in schema:
            return _values([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _values(schema["enum"])
        for word, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
            parts = schema.get(word)
            if isinstance(parts, list | tuple) and parts:
                found = dict.fromkeys(self.typeOf(each, depth + 1) for each in parts)
                return sign.join(_grouped(each) for each in found)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kinds, list | tuple):
            found = dict.fromkeys(self._ofKind(each, schema, depth) for each in kinds)
            return " | ".join(_grouped(each) for each in found) or "unknown"
        return self._ofKind(kinds, schema, depth)

    def _ofKind(self, kind: Any, schema: Mapping[str, Any], depth: int) -> str:
        if isinstance(kind, str) and kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array":
            return self._array(schema, depth)
        if kind != "object":
            return "unknown"
        further = schema.get("additionalProperties")
        known = self._object(schema, depth) if schema.get("properties") else ""
        if isinstance(further, Mapping):
            values = f"Record<string, {self.typeOf(further, depth + 1)}>"
            return f"{known} & {values}" if known else values
        return known or "Record<string, unknown>"

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        items = schema.get("items")
        first = schema.get("prefixItems", items if isinstance(items, list | tuple) else None)
        if first:
            return f"[{', '.join(self.typeOf(each, depth + 1) for each in first)}]"
        return f"{_grouped(self.typeOf(items, depth + 1))}[]"

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        indent = "    " * (depth + 1)
        required = schema.get("required", ())
        lines = ["{"]
        for name, part in schema["properties"].items():
            described = part.get("description", "") if isinstance(part, Mapping) else ""
            lines += comment(str(described), indent)
            isFilled = self._isResult and isinstance(part, Mapping) and "default" in part
            sign = "" if name in required or isFilled else "?"
            lines.append(f"{indent}{key(str(name))}{sign}: {self.typeOf(part, depth + 1)};")
        return "\n".join([*lines, "    " * depth + "}"])


def _values(values: Iterable[Any]) -> str:
    isPlain: Callable[[Any], bool] = lambda value: isinstance(  # noqa: E731
        value, str | int | float | bool | None
    )
    found = dict.fromkeys(literal(each) if isPlain(each) else "unknown" for each in values)
    return " | ".join(found) or "never"


def _grouped(text: str) -> str:
    """Return a type that an operator may follow."""
    return f"({text})" if " | " in text or " & " in text else text

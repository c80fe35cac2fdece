"""
Options: how they are passed, validated and changed.

Options are passed as keywords, as one mapping, or as both; keywords take precedence. An unknown
name raises an L{OptionError} that names it. A reader validates and converts a value. It is the
C{converter} of an attrs field, and raises C{ValueError} with a predicate that follows the name of
the option.

Numbers and sizes from the network, a flag or a file are parsed strictly: Python's own C{int} takes
C{"1_0"}, C{"+1"}, C{" 1 "} and digits of any script.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from attrs import NOTHING, AttrsInstance, Factory, evolve, field, fields

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s*(b|kb|mb|gb|tb)?", re.ASCII | re.IGNORECASE)
_AGE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_SECOND = 1000
_DAY = 24 * 60 * 60 * _SECOND
_AGES = {
    name: ms
    for names, ms in (
        ("|ms|msec|msecs|millisecond|milliseconds", 1),
        ("s|sec|secs|second|seconds", _SECOND),
        ("m|min|mins|minute|minutes", 60 * _SECOND),
        ("h|hr|hrs|hour|hours", 60 * 60 * _SECOND),
        ("d|day|days", _DAY),
        ("w|week|weeks", 7 * _DAY),
        # The average year, as in Express.
        ("y|yr|yrs|year|years", _DAY * 1461 // 4),
    )
    for name in names.split("|")
}
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def parseDecimal(text: str | bytes, maximum: int) -> int:
    """
    Parse a non-negative integer of ASCII digits.

    @param text: The digits and nothing else.
    @param maximum: The largest allowed number.
    @raise ValueError: If there is anything but digits, or the number exceeds C{maximum}.
    """
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    # The digits are counted first: converting a very long string takes quadratic time.
    if _DIGITS.fullmatch(text) and len(text.lstrip("0")) <= len(str(maximum)):
        number = int(text)
        if number <= maximum:
            return number
    raise ValueError(f"not a whole number from 0 to {maximum}")


def parseSize(value: int | str) -> int:
    """
    Parse a size: bytes as a number, or text with a 1024-based unit (C{"10mb"}, C{"1.5gb"}).

    @param value: The size. Text may have a fraction and surrounding white space.
    @return: The size in bytes.
    @raise ValueError: If the text is not a size, or the number is negative.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a size must not be negative")
        return value
    match = None if isinstance(value, bool) else _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number of bytes or text such as 10mb")
    return _scaled(match, _UNITS[(match[3] or "b").lower()])


def parseAge(value: float | str) -> int:
    """
    Parse an age: milliseconds as a number, or text with a unit (C{"1d"}, C{"2 hours"}, C{"1.5h"}).

    @param value: The age. Text without a unit is in milliseconds.
    @return: The age in milliseconds.
    @raise ValueError: If the text is not an age, or the number is negative.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Written this way, it also rejects NaN.
        if not 0 <= value < float("inf"):
            raise ValueError("an age must be finite and not negative")
        return int(value)
    match = _AGE.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = None if match is None else _AGES.get(match[3].lower())
    if match is None or factor is None:
        raise ValueError("an age is a number of milliseconds or text such as 1d")
    return _scaled(match, factor)


def _scaled(match: re.Match[str], factor: int) -> int:
    """Return a number with a fraction, multiplied by a unit."""
    fraction = match[2] or ""
    parts: int = int(fraction or 0) * factor // 10 ** len(fraction)
    return int(match[1]) * factor + parts


K = TypeVar("K", bound=AttrsInstance)
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Hook = Callable[..., Any]
"""A user's function, plain or C{async}."""

# A token of RFC 9110 section 5.6.2.
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

MERGED = "storagegate.merged"
"""
The metadata key of a field whose changes are merged: parts that are not named keep their values.
"""


class OptionError(ValueError):
    """
    An option is unknown or its value invalid; the message names it.

    @ivar errors: The error of each wrong option, if several options are read at once.
    """

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


def joinOptions(
    options: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Mapping[str, Any]:
    """
    Join the options of a mapping with keywords, which take precedence.

    @raise OptionError: If C{options} is not a mapping.
    """
    if options is None:
        return keywords
    if not isinstance(options, Mapping):
        raise OptionError(f"options are a mapping or keywords, not {options!r:.80}")
    return {**options, **keywords}


def listenArguments(given: Mapping[str, Any], hostname: str | None, reactor: Any) -> dict[str, Any]:
    """
    Return the arguments of a C{listen} that was called with a mapping of them.

    @param given: A mapping of C{port}, C{hostname} and C{reactor}; the other arguments take
        precedence.
    @raise OptionError: If the mapping has another key.
    """
    keywords = {"hostname": hostname, "reactor": reactor}
    for name in given:
        _checkKnown(name, {"port": None, **keywords}, "")
    return {**given, **{name: value for name, value in keywords.items() if value is not None}}


class OptionsFunction(Protocol[P, R_co]):
    """A function whose options are keywords, or one mapping instead of all parameters."""

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, options: Mapping[str, Any], /, **more: Any) -> R_co: ...


class TargetOptionsFunction(Protocol[P, R_co]):
    """An L{OptionsFunction} whose mapping may also follow the one positional argument."""

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, options: Mapping[str, Any], /, **more: Any) -> R_co: ...

    @overload
    def __call__(self, target: Any, options: Mapping[str, Any], /, **more: Any) -> R_co: ...


def takesMapping(function: Callable[P, R_co]) -> OptionsFunction[P, R_co]:
    """
    Decorate a function of options to accept one mapping instead of keywords.

    @param function: The function; its first parameter cannot be a mapping itself.
    @raise OptionError: From the returned function, if the mapping has a key that is not a
        parameter, or a required parameter is missing.
    """
    return _takeMapping(function, (1,))


def takesTrailingMapping(function: Callable[P, R_co]) -> TargetOptionsFunction[P, R_co]:
    """
    Decorate a function to accept a mapping as L{takesMapping}, or as the argument after its only
    positional parameter: C{staticFiles("public", {"maxAge": "1d"})}.

    @param function: The function, with one positional parameter without a default.
    """
    return _takeMapping(function, (1, 2))


def _takeMapping(function: Callable[..., R_co], counts: tuple[int, ...]) -> Callable[..., R_co]:
    """
    @param counts: The numbers of positional arguments of which the last may be the mapping.
    """
    parameters = signature(function).parameters
    required = [name for name, each in parameters.items() if each.default is Parameter.empty]
    prefix = f"{function.__name__}."

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> R_co:
        if len(arguments) not in counts or not isinstance(arguments[-1], Mapping):
            return function(*arguments, **keywords)
        *leading, options = arguments
        for name in options:
            _checkKnown(name, parameters, prefix)
        joined = joinOptions(options, keywords)
        # The argument before the mapping is the first parameter.
        for name in required[len(leading) :]:
            if name not in joined:
                raise OptionError(f"the option {prefix}{name} is missing")
        return function(*leading, **joined)

    return call


def readFlag(value: Any) -> bool:
    """Read C{True} or C{False}; other truthy values are rejected."""
    if not isinstance(value, bool):
        raise ValueError("is True or False")
    return value


def readPort(value: Any) -> int:
    """Read a port number; 0 stands for a free port."""
    return readNumber(value, 0, 65535)


def readHostname(value: Any) -> str:
    """Read the name or address of an interface."""
    if not isinstance(value, str) or not value:
        raise ValueError("is the name or address of an interface")
    return value


def readFileName(value: Any) -> str:
    """Read the path of a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is the path of a file")
    return value


def readFieldName(value: Any) -> str:
    """Read the name of a header field."""
    if not isinstance(value, str) or not _FIELD_NAME.fullmatch(value):
        raise ValueError("is the name of a field")
    return value


def readSize(value: Any) -> int:
    """Read a size: bytes, or text with a unit."""
    try:
        return parseSize(value)
    except (ValueError, AttributeError):
        raise ValueError('is a size such as "10mb"') from None


def readNumber(value: Any, minimum: int, maximum: int, unit: str = "") -> int:
    """
    Read an integer within inclusive bounds.

    @param unit: The unit, in the plural, for the error.
    """
    isNumber = isinstance(value, int) and not isinstance(value, bool)
    if not isNumber or not minimum <= value <= maximum:
        counted = f"number of {unit}" if unit else "number"
        raise ValueError(f"is a {counted} from {minimum} to {maximum}")
    return int(value)


def optionField(default: Any, read: Callable[..., Any], *arguments: Any) -> Any:
    """
    Make a field of options.

    @param default: Its default; C{None} also allows C{None} as a value.
    @param read: The reader of its values, called with the value and C{arguments}.
    """

    def convert(value: Any) -> Any:
        return None if value is None and default is None else read(value, *arguments)

    return field(default=default, converter=convert)


def readWord(value: Any, choices: Sequence[str]) -> str:
    """Read one of several words."""
    if not isinstance(value, str) or value not in choices:
        listed = [f'"{choice}"' for choice in choices]
        raise ValueError(f"is {', '.join(listed[:-1])} or {listed[-1]}")
    return value


def readPath(value: Any) -> str:
    """Read a prefix of URL paths; return it without a trailing slash."""
    isPath = isinstance(value, str) and not {"?", "#"} & set(value)
    if not isPath or not (value.startswith("/") or value == ""):
        raise ValueError('is a path such as "/api"')
    return str(value).rstrip("/")


def readTexts(value: Any) -> tuple[str, ...]:
    """Read a list of strings."""
    isList = isinstance(value, list | tuple)
    if not isList or not all(isinstance(each, str) for each in value):
        raise ValueError("is a list of texts")
    return tuple(value)


def readSecrets(value: Any) -> tuple[str | bytes, ...]:
    """
    Read a secret, or several secrets, of which the first signs and all verify.

    @raise ValueError: If one is empty, or neither text nor bytes.
    """
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not several or not all(isinstance(one, str | bytes) and one for one in several):
        raise ValueError("is text, or a list of texts, and none of them is empty")
    return several


def readNames(value: Any) -> Mapping[str, str]:
    """Read a mapping of names to names."""
    isMapping = isinstance(value, Mapping)
    if not isMapping or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError("is a mapping of names to names")
    return dict(value)


def readFunction(value: Any) -> Any:
    """Read a function."""
    if not callable(value):
        raise ValueError("is a function")
    return value


def groupField(kind: type[AttrsInstance] | None = None) -> Any:
    """
    Make a field of nested options; its type is the annotation of the field.

    @param kind: The class of the default; C{None} makes C{None} the default.
    """
    default = None if kind is None else Factory(kind)
    return field(default=default, validator=_checkGroup, metadata={MERGED: True})


def _checkGroup(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, attribute.type):
        raise ValueError("is a mapping of options")


@contextmanager
def _gathering(errors: list[str], name: str) -> Iterator[None]:
    """
    Append the errors of a reader of one option to a list.

    @param name: The name of the option.
    """
    try:
        yield
    except OptionError as error:
        errors += error.errors
    except ValueError as error:
        errors.append(f"the option {name} {error}")


def readEach(given: Mapping[str, Any], read: Callable[[str, Any], R]) -> dict[str, R]:
    """
    Read each entry of a mapping.

    @param read: Called with the name and the value of an entry; its errors contain the name.
    @raise OptionError: If entries are invalid: with the error of each.
    """
    found: dict[str, R] = {}
    errors: list[str] = []
    for name, value in given.items():
        with _gathering(errors, name):
            found[name] = read(name, value)
    if errors:
        raise OptionError(*errors)
    return found


def makeOptions(kind: type[K], given: Mapping[str, Any], prefix: str = "") -> K:
    """
    Make options from a mapping; options without a default are required.

    @param given: Values by the names of the fields' arguments.
    @param prefix: The prefix of names in errors.
    @raise OptionError: If options are unknown, invalid or missing: with the error of each.
    """
    known = {attribute.alias: attribute for attribute in fields(kind)}
    errors: list[str] = []
    for name, value in given.items():
        with _gathering(errors, f"{prefix}{name}"):
            _checkKnown(name, known, prefix)
            # The converter runs again below; this run puts the name into the error.
            known[name].converter(value)
    for name, attribute in known.items():
        if attribute.default is NOTHING and name not in given:
            errors.append(f"the option {prefix}{name} is missing")
    if errors:
        raise OptionError(*errors)
    return kind(**given)


def _checkKnown(name: str, known: Mapping[str, Any], prefix: str) -> None:
    if name not in known:
        raise OptionError(f"there is no option {prefix}{name}; there are {sorted(known)}")


def changeOptions(before: K, changes: Mapping[str, Any], prefix: str = "") -> K:
    """
    Return options with some changes.

    @param changes: New values by name; for a field with the metadata L{MERGED}, a mapping of its
        parts.
    @param prefix: The prefix of names in errors.
    @raise OptionError: If options are unknown or their values invalid: with the error of each.
    """
    known = {attribute.name: attribute for attribute in fields(type(before))}
    result: Any = before
    errors: list[str] = []
    for name, value in changes.items():
        with _gathering(errors, f"{prefix}{name}"):
            _checkKnown(name, known, prefix)
            if MERGED in known[name].metadata and isinstance(value, Mapping):
                value = changeOptions(getattr(result, name), value, f"{prefix}{name}.")
            result = evolve(result, **{name: value})
    if errors:
        raise OptionError(*errors)
    changed: K = result
    return changed

"""Errors of the embedded engine as errors of the tree. The engine's own words reach a log, never a user.

Through Arrow, the stream of a result raises other classes. There, the first words of the text name the kind,
because the engine begins each class's texts with them. A macro raises the text that `refused` writes. What a
function of ours raises reaches the engine's text with the name of its class, and keeps it.

| kind | becomes |
|---|---|
| interrupt | QueryInterrupted |
| memory, spilling | Unavailable |
| out of range | OutOfRange |
| conversion | UnreadableValue, with the value |
| binder, not implemented, parser | UnsupportedSql, with the operator and the types of its operands |
| catalogue | UnknownFunction, UnsupportedSql |
| internal, fatal | Corrupted |
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import duckdb

from rtolap.base.errors import (
    Corrupted,
    OutOfRange,
    QueryError,
    QueryInterrupted,
    RtolapError,
    Unavailable,
    UnreadableValue,
    UnsupportedSql,
)
from rtolap.query.functions.names import unknown_function

log = logging.getLogger(__name__)

_RANGE, _PLAIN = "rtolap-range:", "rtolap-refused:"  # before the words of a macro's own errors
_VALUE = re.compile(
    r"(?:string|value|timestamp|date|interval)\s*(?:field value out of range: )?([\"'])(.{0,200}?)\1",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"value ([-+.\w]+)")
_PATH = re.compile(r"[\"'](/[^\"']+)[\"']")
_CALL = re.compile(r"(?:types|call)\s*['\"](.{0,200}?)\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_NO_FUNCTION = re.compile(r"Function with name \"?(\w+)\"? does not exist")
_BY_MACROS = "Invalid Input Error: "
_BY_FUNCTIONS = "Invalid Input Error: Python exception occurred while executing the UDF: "
_OF_FUNCTIONS = {kind.__name__: kind for kind in (Corrupted, OutOfRange)}
_ARROWS_WORDS_MAX = 40  # characters
_NO_MEMORY = ("Out of Memory", "bad_alloc", "malloc of size")
_RANGE_EXPECTED = "integers of 64 bits, decimals of 38 digits, finite doubles, years from 1 to 9999"


def refused(message: str) -> str:
    """Return the engine's expression that raises UnsupportedSql; `message` is an expression of a text."""
    return f"error('{_PLAIN}' || {message})"


def out_of_range(message: str) -> str:
    """Return the engine's expression that raises OutOfRange; `message` is a text."""
    return f"error('{_RANGE}{message}')"


def translated(error: Exception) -> RtolapError:
    """Return the error that a user is shown for one of the engine's."""
    text = str(error).strip() or type(error).__name__
    words = _beginning(text)
    if isinstance(error, duckdb.InvalidInputException) or not isinstance(error, duckdb.Error):
        found = _of_macro(words) or _of_function(words)
        if found is not None:
            return found
    if isinstance(error, OverflowError):
        return moment_out_of_range("a constant")
    log.info("the embedded engine refused a statement: %s", text.splitlines()[0][:1000])
    by_class = isinstance(error, duckdb.Error)
    for kinds, beginnings, make in _OF_VALUES:
        if isinstance(error, kinds) or (not by_class and words.startswith(beginnings)):
            return make(text)
    if isinstance(error, duckdb.InterruptException) or words.startswith("INTERRUPT") or "Interrupted" in text:
        return QueryInterrupted("the query was interrupted")
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or _lacks_memory(text):
        return _no_memory()
    for kinds, beginnings, make in _OF_THE_ENGINE:
        if isinstance(error, kinds) or (not by_class and words.startswith(beginnings)):
            return make(text)
    return UnsupportedSql("the embedded engine cannot answer the statement", action="write it another way")


def moment_out_of_range(where: str) -> OutOfRange:
    return OutOfRange(
        "a date or moment is out of range", expected="years from 1 to 9999", found=f"others in {where}"
    )


def _beginning(text: str) -> str:
    """Return the text from the engine's own first words on; Arrow writes its own before them."""
    starts = [at for words in _BEGINNINGS if 0 <= (at := text.find(words)) < _ARROWS_WORDS_MAX]
    return text[min(starts) :] if starts else text


def _of_macro(words: str) -> QueryError | None:
    for mark, kind in ((_RANGE, OutOfRange), (_PLAIN, UnsupportedSql)):
        if words.startswith(_BY_MACROS + mark):
            message = words.removeprefix(_BY_MACROS + mark).splitlines()[0]
            return kind(message, expected=_RANGE_EXPECTED if kind is OutOfRange else None)
    return None


def _of_function(words: str) -> RtolapError | None:
    name, _, message = words.removeprefix(_BY_FUNCTIONS).partition(": ")
    kind = _OF_FUNCTIONS.get(name) if words.startswith(_BY_FUNCTIONS) else None
    return None if kind is None else kind(message.splitlines()[0])


def _lacks_memory(text: str) -> bool:
    return any(part in text for part in _NO_MEMORY)


def _no_memory() -> RtolapError:
    return Unavailable("the query needs more memory than it may have", action="group by less")


def _spill(text: str) -> RtolapError:
    path = _PATH.search(text)
    return Unavailable(
        "the query needs more memory than it may have, and the engine could not spill it to disk",
        found=None if path is None else path[1],
        action="see that the service may write there and that the disk has room, or group by less",
    )


def _range(text: str) -> RtolapError:
    return OutOfRange("a value is out of range", expected=_RANGE_EXPECTED)


def _conversion(text: str) -> RtolapError:
    if "out of range" in text or "Could not cast value" in text:
        return OutOfRange(
            "a value is out of the range of the type that it is brought to",
            expected=_RANGE_EXPECTED,
            found=_value(text),
        )
    return UnreadableValue(
        "a value cannot be read as the type that it is used as",
        expected="a number, date or time as MySQL writes it, where one is used",
        found=_value(text),
        action="leave such rows out, or cast the value explicitly",
    )


def _value(text: str) -> str | None:
    quoted = _VALUE.search(text)
    if quoted is not None:
        return repr(quoted[2])
    bare = _BARE_VALUE.search(text)
    return None if bare is None else bare[1]


def _operands(text: str) -> RtolapError:
    call = _CALL.search(text)
    return UnsupportedSql(
        "unsupported SQL: an operator or function does not take operands of these types",
        expected="operands of types that go together",
        found=None
        if call is None
        else f"{call[1].upper()} of ({call[2]})".replace('"', "").replace("_LITERAL", ""),
        action="cast them explicitly",
    )


def _catalogue(text: str) -> RtolapError:
    unknown = _NO_FUNCTION.search(text)
    return _operands(text) if unknown is None else unknown_function(unknown[1])


def _invalid(text: str) -> RtolapError:
    if _lacks_memory(text):
        return _no_memory()
    if "out of range" in text:
        return _range(text)
    return UnreadableValue(
        "a function was given a value that it does not take",
        expected="values within the function's domain",
        action="leave such rows out",
    )


def _failed(text: str) -> RtolapError:
    return Corrupted("the embedded engine failed", action="see the log of the query service")


_Kinds = tuple[tuple[tuple[type[Exception], ...], tuple[str, ...], Callable[[str], RtolapError]], ...]
# Errors that a value or the statement causes. They may repeat any text of a user.
_OF_VALUES: _Kinds = (
    ((duckdb.OutOfRangeException,), ("Out of Range Error",), _range),
    ((duckdb.ConversionException,), ("Conversion Error",), _conversion),
    ((duckdb.InvalidInputException,), ("Invalid Input Error",), _invalid),
    ((duckdb.CatalogException,), ("Catalog Error",), _catalogue),
    (
        (
            duckdb.BinderException,
            duckdb.NotImplementedException,
            duckdb.ParserException,
            duckdb.TypeMismatchException,
        ),
        ("Binder Error", "Not implemented Error", "Parser Error", "Mismatch Type Error"),
        _operands,
    ),
)
_OF_THE_ENGINE: _Kinds = (
    ((duckdb.IOException,), ("IO Error",), _spill),  # no other files than spills
    ((duckdb.InternalException, duckdb.FatalException), ("INTERNAL Error", "FATAL Error"), _failed),
)
_BEGINNINGS = ("INTERRUPT Error", *(words for _, some, _ in (*_OF_VALUES, *_OF_THE_ENGINE) for words in some))

"""Typed decoding that several threads may begin at once.

msgspec (0.22) looks into a class when it is first decoded, and lets other threads run meanwhile. Another
one that needs the same class then crashes the process. So each class is looked into once, under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")
M = TypeVar("M", bound=msgspec.Struct)

_lock = threading.RLock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode_json(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Decode JSON. Raises `undecodable.UNDECODABLE`."""
    return cast(T, _decoder(kind).decode(data))


def decode_msgpack(data: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Decode MessagePack. Raises `undecodable.UNDECODABLE`."""
    _decoder(kind)  # looks into the class
    return msgspec.msgpack.decode(data, type=kind)


def convert(
    value: object,
    kind: type[T],
    *,
    strict: bool = True,
    from_attributes: bool = False,
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> T:
    """Convert builtins, or an object's attributes, as `msgspec.convert` does. Raises
    `msgspec.ValidationError`.
    """
    _decoder(kind)  # looks into the class
    try:
        return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes, dec_hook=dec_hook)
    except UnicodeEncodeError as error:  # as "\\ud83d" of YAML
        raise msgspec.ValidationError("a text has half a character: a surrogate without its other") from error


def copied(kind: type[M], source: object, /, **others: Any) -> M:
    """Return a message of `kind`. Each field that `others` do not give has the value of the attribute of
    `source` with its name, which has to be there: defaults of fields do not count."""
    own = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in others}
    return kind(**own, **others)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        with _lock:
            found = _decoders.get(kind) or msgspec.json.Decoder(kind)
            _decoders[kind] = found
    return found

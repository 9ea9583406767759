"""Threads that decode a class for the first time at once: where msgspec by itself crashes the process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest
from rtolap.base.decoding import convert, copied, decode_json

from tests.support.paths import PROJECT

_FIRST_TIMES = """
import sys, threading
import msgspec
from rtolap.base.decoding import convert, decode_json

sys.setswitchinterval(1e-6)
VALUE = {"middle": {"inner": {"numbers": [1]}, "more": []}, "count": 1}
DATA = msgspec.json.encode(VALUE)
for number in range(150):
    inner = msgspec.defstruct(f"Inner{number}", [("numbers", tuple[int, ...])])
    middle = msgspec.defstruct(f"Middle{number}", [("inner", inner), ("more", list[inner])])
    outer = msgspec.defstruct(f"Outer{number}", [("middle", middle), ("count", int)])
    barrier, decoded = threading.Barrier(6), []

    def decode(at):
        barrier.wait()
        decoded.append(decode_json(DATA, outer) if at % 2 else convert(VALUE, outer))

    threads = [threading.Thread(target=decode, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.middle.inner.numbers for each in decoded] == [(1,)] * 6
print("all were decoded")
"""


class Point(msgspec.Struct):
    x: int
    y: int = 0


def test_threads_may_decode_a_class_for_the_first_time_at_once() -> None:
    ran = subprocess.run([sys.executable, "-c", _FIRST_TIMES], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all were decoded\n"), ran.stderr


def test_what_does_not_fit_is_refused_as_by_msgspec() -> None:
    assert decode_json(b'{"x": 1}', Point) == Point(1)
    assert decode_json("[1, 2]", tuple[int, ...]) == (1, 2)
    assert convert({"x": "1"}, Point, strict=False) == Point(1)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decode_json(b'{"x": "1"}', Point)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        convert({"x": "1"}, Point)


def _around(tree: ast.AST) -> Iterator[str]:
    """Return the calls that may look into a class in whichever thread makes them."""
    in_functions = {
        id(call)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for call in ast.walk(function)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        is_typed = any(keyword.arg == "type" for keyword in call.keywords)
        is_late = id(call) in in_functions  # what a module makes as it is imported is made by one thread
        if (
            name == "msgspec.convert"
            or (re.fullmatch(r"msgspec\.\w+\.decode", name) and is_typed)
            or (re.fullmatch(r"msgspec\.\w+\.Decoder", name) and is_late)
        ):
            yield name


def test_nothing_decodes_a_class_around_it() -> None:
    """The two readers of events make classes of their own for each topic, which no other thread has."""
    found = {
        path.relative_to(PROJECT / "plugins/rtolap").as_posix()
        for folder in ("plugins", "spark_jobs", "dags")
        for path in (PROJECT / folder).rglob("*.py")
        if any(_around(ast.parse(path.read_text())))
    }
    assert found == {"base/decoding.py", "events/json_reader.py", "events/rows.py"}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("msgspec.convert(x, K)", True),
        ("msgspec.json.decode(f(g(x)), type=K)", True),
        ("msgspec.msgpack.decode(x, type=K)", True),
        ("def f(): return msgspec.json.Decoder(K)", True),
        ("D = msgspec.json.Decoder(K)", False),
        ("msgspec.json.decode(x)", False),
    ],
)
def test_what_goes_around_it_is_noticed(text: str, is_found: bool) -> None:
    assert any(_around(ast.parse(text))) == is_found


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    count: int
    note: str = ""


def test_a_copied_message_has_what_is_given_and_else_the_attributes_of_its_source() -> None:
    found = SimpleNamespace(count=3, source="theirs", note="theirs")
    assert copied(_Message, found, source="own") == _Message(source="own", count=3, note="theirs")


def test_a_default_does_not_hide_that_the_source_lacks_a_field() -> None:
    with pytest.raises(AttributeError, match="note"):
        copied(_Message, SimpleNamespace(count=3), source="own")


@pytest.mark.parametrize("value", ["\ud83d", {"\ud83d": 1}, {"source": "x", "count": 1, "a\udc80b": 2}])
def test_half_a_character_is_an_error_of_the_input(value: object) -> None:
    """A file of YAML may have one, which no UTF-8 writes."""
    with pytest.raises(msgspec.ValidationError, match="half a character"):
        convert(value, _Message)

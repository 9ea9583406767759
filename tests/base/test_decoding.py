"""Threads that decode a class for the first time at once: where msgspec by itself crashes the process."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
import pytest
from rtolap.base.decoding import convert, decode_json

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


def test_nothing_decodes_a_class_around_it() -> None:
    """Decoders that a module makes as it is imported are made by one thread."""
    around = re.compile(
        r"msgspec\.json\.decode\([^)]*type=|msgspec\.convert\(|^\s+return msgspec\.json\.Decoder\(", re.M
    )
    found = [
        path.relative_to(PROJECT).as_posix()
        for folder in ("plugins", "spark_jobs", "dags")
        for path in (PROJECT / folder).rglob("*.py")
        if around.search(path.read_text())
    ]
    assert found == ["plugins/rtolap/base/decoding.py"]

"""Paths are what they are to Java, Hadoop and Spark, whatever letters they have."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.base.errors import DefinitionError
from rtolap.stack.java import hadoop_uri, option_string, properties
from rtolap.stack.layout import StackLayout
from rtolap.stack.lifecycle import Stack

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)
_UNIT = re.compile(r"\\u([0-9a-f]{4})")


def as_java_reads_it(data: bytes) -> str:
    """A value of `Properties.load`: Latin-1, with UTF-16 units behind a backslash."""
    text = _UNIT.sub(lambda unit: chr(int(unit[1], 16)), data.decode("latin-1"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


@given(value=TEXTS)
def test_java_reads_a_property_as_it_was_given(value: str) -> None:
    written = properties({"log.dirs": value}).encode()
    assert written.isascii()
    name, _, read = as_java_reads_it(written.removesuffix(b"\n")).partition("=")
    assert (name, read) == ("log.dirs", value)


@given(
    flags=st.lists(
        st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\"'\\"), min_size=1)
    )
)
def test_spark_takes_one_text_apart_into_the_flags(flags: list[str]) -> None:
    flags = [f"-XX:SharedArchiveFile=/{flag}" for flag in flags]
    assert shlex.split(option_string(flags)) == flags


def test_hadoop_is_given_a_path_without_escapes() -> None:
    assert hadoop_uri(Path("/ein Stück/100%")) == "file:///ein Stück/100%"


@pytest.mark.parametrize("name", ["a,b", "a:b", 'a"b'])
def test_a_folder_that_ends_a_path_for_some_server_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match="a stack cannot be in") as raised:
        Stack(StackLayout(tmp_path / name)).up(["zookeeper"], {}, lambda *_: None)
    assert "--dir" in str(raised.value)
    assert not (tmp_path / name).exists()

"""The texts that a Java class holds, read from its file: the format is that of the Java virtual machine."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

_UTF8 = 1
_SETTING = re.compile(r"spark(\.[A-Za-z][A-Za-z0-9]*)+")
_WIDE = (5, 6)  # a long or double takes two places
_SIZES = {7: 3, 8: 3, 16: 3, 19: 3, 20: 3, 15: 4, 5: 9, 6: 9} | dict.fromkeys(
    (3, 4, 9, 10, 11, 12, 17, 18), 5
)


def class_texts(jars: Iterable[Path], class_name: str) -> set[str]:
    """Return the texts of the class, from the first jar that has it. A value that is put in at run time is
    `{}`, whichever way the compiler marks it. Raises KeyError where no jar has the class."""
    entry = class_name.replace(".", "/") + ".class"
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            if entry in archive.namelist():
                return {
                    text.replace("\1", "{}").replace("%s", "{}").replace("%d", "{}")
                    for text in _constants(archive.read(entry))
                }
    raise KeyError(class_name)


def spark_setting_names(jars: Iterable[Path]) -> set[str]:
    """Return every text of a class in these jars that looks like the name of a setting of Spark."""
    names: set[str] = set()
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".class") and b"spark." in (data := archive.read(entry)):
                    names |= {text for text in _constants(data) if _SETTING.fullmatch(text)}
    return names


def _constants(data: bytes) -> Iterable[str]:
    (count,) = struct.unpack_from(">H", data, 8)
    at, number = 10, 1
    while number < count:
        tag = data[at]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", data, at + 1)
            yield data[at + 3 : at + 3 + size].decode("utf-8", errors="replace")
            at += 3 + size
        else:
            at += _SIZES[tag]
            number += tag in _WIDE
        number += 1

"""Texts of `.proto` files → their descriptors, by protoc, which the package grpcio-tools brings along.

Registries other than Confluent's answer with the text of a file, whatever form is asked for. The compiler is
the makers' own, in a process of its own: what a text does to it costs this process nothing, and it has an
end. It reads the texts in a folder of their own and the files that come with it, and nothing else.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.model.formats.protobuf_set import unreadable

COMPILE_S = 20.0  # a start of Python and some milliseconds; the thread that reads records waits for so long
TEXT_CHARS_MAX = 4 << 20  # of all texts; the generated ones of large models have some hundred kilobytes
_COMPILED_MAX = 64  # sets that are kept: several cubes read one topic
_COMPILER = "grpc_tools"
_STEP = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PATH_CHARS_MAX = 512
_SHOWN_CHARS_MAX = 500


def is_source(text: str) -> bool:
    """Return True for the text of a file, False for a descriptor in Base64: which has none of these."""
    return any(character in text for character in ";{}")


def compiled(texts: Mapping[str, str], main: str) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the descriptors of a file and of all that it imports.

    Args:
        texts: by the name by which files import each other, `main` among them.

    Raises DefinitionError where the texts are no files that fit each other, and Unavailable where they cannot
    be compiled here and now.
    """
    for name in texts:
        _check_name(name)
    size = sum(map(len, texts.values()))
    if size > TEXT_CHARS_MAX:
        raise DefinitionError("too long a schema", expected=f"{TEXT_CHARS_MAX} characters", found=size)
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(_descriptors(tuple(sorted(texts.items())), main))
    except DecodeError as error:
        raise unreadable("a FileDescriptorSet of protoc", error) from error
    return list(found.file)


@functools.lru_cache(_COMPILED_MAX)
def _descriptors(texts: tuple[tuple[str, str], ...], main: str) -> bytes:
    if find_spec(_COMPILER) is None:
        raise Unavailable(
            "the text of a .proto file cannot be compiled on this host",
            expected="the package grpcio-tools",
            found="none",
            action="install rtolap[protobuf-text]; records that need it wait",
        )
    with tempfile.TemporaryDirectory(prefix="rtolap-proto-") as folder:
        sources, out = Path(folder) / "sources", Path(folder) / "descriptors"
        sources.mkdir()
        for name, text in texts:
            path = sources / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise unreadable("files none of which is a folder of others", error) from error
        command = (
            *(sys.executable, "-I", "-m", f"{_COMPILER}.protoc", f"-I{sources}"),
            *(f"--descriptor_set_out={out}", "--include_imports", main),
        )
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILE_S, check=False
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            raise _not_now(str(error)) from error
        said = done.stderr.decode("utf-8", "replace").replace(f"{sources}/", "").strip()
        if done.returncode < 0:
            raise _not_now(f"it was ended by signal {-done.returncode}")
        if done.returncode:
            raise DefinitionError(
                "not the text of a .proto file that compiles",
                expected="one whose imports are among its references",
                found=said[:_SHOWN_CHARS_MAX],
            )
        return out.read_bytes()


def _check_name(name: str) -> None:
    steps = name.split("/")
    is_path = all(_STEP.fullmatch(step) and step not in (".", "..") for step in steps)
    if not is_path or len(name) > _PATH_CHARS_MAX:
        raise DefinitionError(
            "not the name of a file that another one imports",
            expected="a relative path of letters, digits, _, - and .",
            found=repr(name[:_SHOWN_CHARS_MAX]),
        )


def _not_now(found: str) -> Unavailable:
    return Unavailable(
        "protoc does not compile the text of a .proto file now",
        expected=f"its end within {COMPILE_S:g} s",
        found=found[:_SHOWN_CHARS_MAX],
        action="records that need it wait; it is tried again",
    )

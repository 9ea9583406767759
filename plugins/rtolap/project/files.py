"""The YAML of a guess, with comments that say why. Nothing is overwritten."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import yaml

from rtolap.base.errors import AlreadyExists, RtolapError
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER, Table
from rtolap.model.yaml_files import read_definitions
from rtolap.project.guess import Guess

_COMMENT_CHARS_MAX = 200


def write_project(guessed: Guess, folder: Path) -> tuple[Path, Path]:
    """Write the table and the cube below `folder`/include, and return their files.

    Both were read by the product's own reader before. Raises AlreadyExists, and leaves all as it was.
    """
    name = f"{guessed.table.name}.yaml"
    texts = {"tables": table_text(guessed), "cubes": cube_text(guessed)}
    with tempfile.TemporaryDirectory(prefix="rtolap-init-") as checked:
        for kind, text in texts.items():
            (Path(checked) / f"{kind}.yaml").write_text(text, encoding="utf-8")
        read_definitions(Path(checked))
    paths = {kind: folder / "include" / kind / name for kind in texts}
    for path in paths.values():
        if path.exists() or path.is_symlink():
            raise _exists(path)
    written: list[Path] = []
    try:
        for kind, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(texts[kind])
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise _exists(path) from None
        raise RtolapError(f"{path} cannot be written", found=error.strerror) from error
    return paths["tables"], paths["cubes"]


def _exists(path: Path) -> AlreadyExists:
    return AlreadyExists(f"{path} exists, and is not overwritten", action="--into another folder, or move it")


def table_text(guessed: Guess) -> str:
    """Return the table's YAML."""
    table = guessed.table
    lines = [
        f"# Guessed by `rtolap init` from {guessed.looked_at} records. Correct what you know better.",
    ]
    if guessed.broken:
        lines.append(
            f"# {guessed.broken} of them are not {guessed.broken_as}: they go to {table.topic}.dead-letters."
        )
    lines += [
        "kind: table",
        f"name: {_text(table.name)}",
        f"topic: {_text(table.topic)}",
        *_kafka_lines(table),
        "time:",
        f"  # {_comment(guessed.time_reason)}. Without an offset: in `zone`, default UTC.",
        f"  column: {_text(table.time.column)}",
        f"  format: {_text(table.time.format)}",
        "columns:",
    ]
    for column in table.columns:
        path = "" if column.path is None else f", path: {_text(column.path)}"
        reason = _comment(guessed.reasons[column.name])
        lines.append(f"  - {{name: {_text(column.name)}, type: {_text(column.type)}{path}}}  # {reason}")
    if guessed.left_out:
        lines.append("# Left out, since a column of it could refuse records:")
        lines += [f"#   {_comment(path)}: {_comment(why)}" for path, why in guessed.left_out]
    return "\n".join(lines) + "\n"


def _kafka_lines(table: Table) -> list[str]:
    """Return where the topic is and how its records are written, where that is not the default."""
    lines = []
    if table.kafka_cluster != DEFAULT_KAFKA_CLUSTER:
        lines.append(f"kafka_cluster: {_text(table.kafka_cluster)}")
    if table.format != "json":
        options = msgspec.to_builtins(table.record_format)
        written = [f"{name}: {_flow(value)}" for name, value in options.items()]
        lines.append(f"format: {{{', '.join(written)}}}")
    return lines


def _flow(value: Any) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list | tuple) else _text(value)


def cube_text(guessed: Guess) -> str:
    """Return the cube's YAML."""
    cube = guessed.cube
    lines = [
        "# Guessed by `rtolap init`: the table's file says why. `rtolap cube size` predicts its size.",
        "kind: cube",
        f"name: {_text(cube.name)}",
        f"table: {_text(cube.table)}",
        f"dimensions: [{', '.join(map(_text, cube.dimensions))}]  # texts and truth values with few values",
        f"time_dimensions: [{', '.join(cube.time_dimensions)}]",
        "measures:",
    ]
    for measure in cube.measures:
        column = "" if measure.column is None else f", column: {_text(measure.column)}"
        lines.append(f"  - {{function: {measure.function}{column}}}")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', width=1 << 20).strip()


def _comment(text: str) -> str:
    """Return the text on one line, without what YAML does not take even in comments."""
    return text.encode("ascii", "backslashreplace").decode().translate(_CONTROLS)[:_COMMENT_CHARS_MAX]


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)}

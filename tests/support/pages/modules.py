"""The pages docs/modules/: where to find what, from the first lines of the modules' own docstrings.

    python -m tests.support.pages.modules      writes them

A room has a page, with a table for each folder below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.paths import PLUGINS, PROJECT

ROOT = PLUGINS / "rtolap"
FOLDER = PROJECT / "docs" / "modules"
WORDS_MAX = 2_400
WRITTEN = "Written by `make reference` from the docstrings of the modules."


def packages(folder: Path = ROOT) -> Iterator[Path]:
    """Yield this package and all packages below it, in the order of their names."""
    yield folder
    for below in sorted(folder.iterdir()):
        if (below / "__init__.py").is_file():
            yield from packages(below)


def docstring(file: Path) -> str:
    """Return the docstring of a module, or of a package by its folder; "" where there is none."""
    path = file / "__init__.py" if file.is_dir() else file
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def first_line(file: Path) -> str:
    """Return the first paragraph of the docstring in one line."""
    return " ".join(docstring(file).split("\n\n")[0].split()).replace("|", "\\|")


def modules(package: Path) -> list[Path]:
    """Return the modules of a package, without those that a compiler has written."""
    found = sorted(package.glob("*.py"))
    return [file for file in found if file.name != "__init__.py" and not file.stem.endswith("_pb2")]


def rooms() -> list[Path]:
    """Return the packages of the first level."""
    return [package for package in packages() if package.parent == ROOT]


def _table(package: Path) -> str:
    rows = [f"| `{file.stem}` | {first_line(file)} |" for file in modules(package)]
    return "\n".join(["| module | what it is |", "|---|---|", *rows]) + "\n" if rows else ""


def _page(top: Path, below: Sequence[Path], links: str = "") -> str:
    parts = [f"# {top.relative_to(ROOT).as_posix()}\n\n{first_line(top)} {WRITTEN}\n", links, _table(top)]
    for package in below:
        parts += [f"## {package.relative_to(ROOT).as_posix()}\n{first_line(package)}\n", _table(package)]
    return "\n".join(part for part in parts if part)


def room_pages(room: Path) -> dict[str, str]:
    """Return the page of a room, or pages of its folders where one would be too long, by name."""
    below = list(packages(room))[1:]
    whole = _page(room, below)
    if len(whole.split()) <= WORDS_MAX:
        return {room.name: whole}
    parts = [package for package in below if package.parent == room]
    links = [f"| [{part.name}]({room.name}_{part.name}.md) | {first_line(part)} |" for part in parts]
    pages = {room.name: _page(room, [], "\n".join(["| folder | what it is |", "|---|---|", *links]) + "\n")}
    for part in parts:
        pages[f"{room.name}_{part.name}"] = _page(part, list(packages(part))[1:])
    return pages


def index_page() -> str:
    """Return the page that leads to all rooms."""
    rows = [f"| [{room.name}]({room.name}.md) | {first_line(room)} |" for room in rooms()]
    alone = [f"| `{file.stem}` | {first_line(file)} |" for file in modules(ROOT)]
    return "\n".join(
        [
            "# Where to find what",
            "",
            f"Each room of `plugins/rtolap/` has a page with a line for each module. {WRITTEN}",
            "How rooms work together: [flows](../flows.md).",
            "Which may import which: [architecture](../architecture.md).",
            "",
            "| room | what it is |",
            "|---|---|",
            *rows,
            *alone,
            "",
        ]
    )


def pages() -> dict[Path, str]:
    """Return the text of every page of docs/modules/, by its file."""
    named = {name: text for room in rooms() for name, text in room_pages(room).items()}
    return {FOLDER / f"{name}.md": text for name, text in {"README": index_page(), **named}.items()}


def main() -> None:
    """Write the pages, and remove those of rooms that are gone."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for old in set(FOLDER.glob("*.md")) - set(written):
        old.unlink()
    for file, text in written.items():
        file.write_text(text)


if __name__ == "__main__":
    main()

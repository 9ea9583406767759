"""Tests of what the pages name is there: tests, files, modules that are run, commands and their options."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.cli.main import MOUNTS, load

from tests.support.pages.texts import ALL_PAGES, pages_of

ROOT = Path(__file__).resolve().parents[2]
TESTS, TESTING, PAGES = ROOT / "tests", pages_of("testing"), ALL_PAGES
_SPAN = re.compile(r"`([^`]+)`")
# Of formatted code: its strings over several lines, and what stands on the first two levels of a module.
_STRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""', re.S)
_DEFINED = re.compile(r"^(|    )(?:async )?(def|class) (\w+)", re.M)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def spans(page: Path) -> Iterator[tuple[str, str]]:
    """Return (where, what stands in backquotes)"""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for found in _SPAN.findall(line):
            yield f"{page.name}:{number}", found


@functools.cache
def named_in(file: Path) -> frozenset[str]:
    """`test_x`, and `TestY::test_x` in classes; `TestY::` alone too, for it may inherit its tests."""
    found, inside = set(), ""
    for indent, kind, name in _DEFINED.findall(_STRING.sub("", file.read_text())):
        if not indent:
            inside = f"{name}::" if kind == "class" and name.startswith("Test") else ""
            found |= {inside} if inside else {name} if name.startswith("test_") else set()
        elif inside and name.startswith("test_"):
            found.add(f"{inside}{name}")
    return frozenset(found)


def test_every_test_that_is_named_is_there() -> None:
    wrong, named, file = [], 0, ""
    for where, span in (each for page in TESTING for each in spans(page)):
        path, colons, name = span.partition("::")
        file = path if colons and path else file  # `::name` is of the file before it
        if not colons or not file:  # before the first file the notation is explained
            continue
        if not (TESTS / file).is_file():
            wrong.append(f"{where}: no file {file}")
        elif not any(fnmatch.fnmatchcase(each, name) for each in named_in(TESTS / file)):
            wrong.append(f"{where}: no test {name} in {file}")
        named += 1
    assert not wrong, "\n".join(wrong)
    assert named > 300


def test_every_file_that_is_named_is_there() -> None:
    wrong = [
        f"{where}: {span}"
        for page in TESTING
        for where, span in spans(page)
        if re.fullmatch(r"[\w.]+(/[\w.*]+)+", span)
        and not any(any(under.glob(span)) for under in (TESTS, ROOT, ROOT / "plugins"))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_that_is_run_is_there() -> None:
    modules = {name for page in PAGES for name in re.findall(r"python -m ([\w.]+)", page.read_text())}
    own = {name for name in modules if name.startswith(("rtolap.", "benchmarks."))}
    assert len(own) > 10
    for name in own:
        path = Path(*name.split("."))
        places = [
            under / file for under in (ROOT, ROOT / "plugins") for file in (path.with_suffix(".py"), path)
        ]
        assert any(place.exists() for place in places), name


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Return (where, what follows `rtolap `), of blocks and of what stands in backquotes."""
    block = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            block = not block
        found = re.findall(r"(?:^|[\s/])rtolap ([^#]*)", line) if block else []
        if not block:
            found = [
                span.removeprefix("rtolap ") for span in _SPAN.findall(line) if span.startswith("rtolap ")
            ]
        for command in found:
            yield f"{page.name}:{number}", command.replace("\\|", "|")


def wrong_in(command: str) -> str | None:
    """What there is not: a command, or an option of it. `a|b` stands for each of both."""
    first, *rest = command.split()
    if first.startswith("-") or not re.fullmatch(r"[a-z|-]+", first):
        return None
    for name in first.split("|"):
        if name not in MOUNTS:
            return f"no command {name}"
        at: list[Any] = [load(name)]
        words = list(rest)
        while words and hasattr(at[0], "commands") and re.fullmatch(r"[a-z][a-z|-]*", words[0]):
            unknown = [each for each in words[0].split("|") if each not in at[0].commands]
            if unknown:
                return f"{at[0].name} has no command {unknown[0]}"
            at = [at[0].commands[each] for each in words.pop(0).split("|")]
        for one in at:
            known = {"--help"} | {o for it in one.params for o in (*it.opts, *it.secondary_opts)}
            for option in _OPTION.findall(" ".join(words)):
                if option not in known and not hasattr(one, "commands"):
                    return f"{one.name} has no option {option}"
    return None


def test_every_command_that_is_shown_and_its_options_are_there() -> None:
    shown = [(where, command) for page in PAGES for where, command in commands(page) if command.strip()]
    assert len(shown) > 80
    wrong = [f"{where}: rtolap {command}: {said}" for where, command in shown if (said := wrong_in(command))]
    assert not wrong, "\n".join(wrong)


WORDS_MAX = 2_500
LOOKED_UP = {"reference.md"}  # written out of the code, and searched rather than read


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in LOOKED_UP], ids=name_of)
def test_a_page_is_read_in_one_sitting(page: Path) -> None:
    assert len(page.read_text().split()) <= WORDS_MAX, "split it by what its readers want to do"


def pages_led_to(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text())
    return {(page.parent / link).resolve() for link in links}


def test_every_page_is_found_from_the_index() -> None:
    docs = ROOT / "docs"
    found: set[Path] = set()
    follow = {docs / "README.md"}
    while follow:
        found |= follow
        follow = {leads for page in follow if page.exists() for leads in pages_led_to(page)} - found
    assert {page for page in docs.rglob("*.md") if page.parent.name != "decisions"} <= found


def test_what_is_not_there_is_noticed() -> None:
    assert wrong_in("loader run JOB --port 1") is None
    assert wrong_in("loader run JOB --json") == "run has no option --json"
    assert wrong_in("loader stop|pose JOB") == "loader has no command pose"
    assert wrong_in("leader run") == "no command leader"

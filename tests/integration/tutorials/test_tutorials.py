"""The tutorials do what they say: each is run in an empty folder, as it stands, and stops what it started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.stack.layout import StackLayout
from rtolap.stack.together import marked_processes

from tests.support.runs.tutorials import first_missing, run, steps_of

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("java")]

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs" / "tutorials").glob("*.md"))
TIMEOUT_S = 400.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    command = [sys.executable, "-m", "rtolap.cli.main", "stack", "down", "--dir", str(tmp_path / ".stack")]
    subprocess.run(command, capture_output=True, timeout=300, check=False)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_tutorial_does_what_it_says(page: Path, folder: Path) -> None:
    run(page, folder, timeout_s=TIMEOUT_S)
    assert marked_processes(StackLayout(folder / ".stack")) == []


def test_a_page_that_is_untrue_is_named_by_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n```sh\necho one; echo two\n```\n```text\ntwo\none\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2 does not print 'one'"):
        run(page, tmp_path, timeout_s=10)
    page.write_text("# One\n```sh\necho one\n```\nand\n```sh\nfalse\necho on\n```\n```sh\necho three\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:6 ends with 1"):
        run(page, tmp_path, timeout_s=10)


def test_blocks_that_nobody_would_run_are_refused() -> None:
    with pytest.raises(ValueError, match="line 3: a block is sh"):
        steps_of("a\n\n```\nrtolap\n```\n")
    with pytest.raises(ValueError, match="line 1: a block is sh"):
        steps_of("```text\nan answer to nothing\n```\n")


def test_a_table_of_a_pipe_is_that_of_a_terminal() -> None:
    assert first_missing(("Bern   │ 3",), "│ Bern │    3 │\n") is None
    assert first_missing(("Bern 3", "Lyon 4"), "Lyon\t4\nBern\t3\n") == "Lyon 4"

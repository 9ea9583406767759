"""The page of flows: every module that it names is there, so that it goes on leading somewhere."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import PLUGINS, PROJECT

PAGE = (PROJECT / "docs" / "flows.md").read_text()
ROOM = PLUGINS / "rtolap"
_BLOCKS = re.findall(r"^## (.*?)\n```\n(.*?)```", PAGE, re.S | re.M)


@pytest.mark.parametrize(("title", "drawing"), _BLOCKS)
def test_each_module_of_a_flow_exists(title: str, drawing: str) -> None:
    known = {
        "/".join(path.relative_to(ROOM).with_suffix("").parts[depth:])
        for path in (*ROOM.rglob("*"), *(PROJECT / "spark_jobs").rglob("*"))
        if path.is_relative_to(ROOM) and (path.is_dir() or path.suffix == ".py")
        for depth in range(3)
    }
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)+", drawing)
    assert named, title
    missing = [name for name in named if name not in known and not (PROJECT / f"{name}.py").exists()]
    assert not missing


def test_each_question_leads_to_a_module_and_the_name_in_it() -> None:
    rows = re.findall(r"^\| Where .*? \| (.*) \|$", PAGE, re.M)
    assert len(rows) == 8
    for row in rows:
        for path, name in re.findall(r"`([a-z_/]+\.py)`(?: \(`(\w+)`\))?", row):
            assert name in (ROOM / path).read_text()

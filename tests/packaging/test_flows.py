"""The page of flows: every module that it names is there, so that it goes on leading somewhere."""

from __future__ import annotations

import re

import pytest
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.states import MoveEvent, MoveState, PlanEvent, PlanState

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


def test_there_is_a_flow_for_the_fleet_and_for_the_cancel_of_a_plan() -> None:
    titles = [title for title, _ in _BLOCKS]
    assert {"A fleet to moved replicas", "A cancel of a plan"} <= set(titles)


@pytest.mark.parametrize("title", ["A fleet to moved replicas", "A cancel of a plan"])
def test_states_and_events_of_a_plan_in_a_flow_are_those_of_the_tables(title: str) -> None:
    (drawing,) = (drawing for each, drawing in _BLOCKS if each == title)
    known = {
        member.name for table in (MoveState, MoveEvent, PlanState, PlanEvent, RequestKind) for member in table
    }
    named = set(re.findall(r"\b[A-Z]{4,}\b", drawing))
    assert len(named) > 5
    assert named <= known


def test_the_page_leads_to_the_list_of_all_modules() -> None:
    assert "](modules/README.md)" in PAGE

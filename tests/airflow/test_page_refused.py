"""Refused records on the page: some at a time, the newest first, each once, and for who may ask alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page import cube_routes
from rtolap.airflow.page.refused import RefusedRecords, offsets_before, refused_records
from rtolap.airflow.page.rights import asker, reader
from rtolap.airflow.plugin import app
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.kafka.dead_letters import DatedLetter, DeadLetter, OlderDeadLetters
from rtolap.model.cube import Cube
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.protocols.coordinator.messages import CubeStatus

NOW_MS = 1_700_000_000_000
LETTERS = "clicks.dead-letters"


def letter(offset: int, at_ms: int = 1, topic: str = "clicks") -> DatedLetter:
    return DatedLetter(at_ms, DeadLetter(topic, 0, offset, "not_json", "<b>", "{"))


class Coordinator:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def cube(self, name: str) -> CubeStatus:
        definition = msgspec.to_builtins(Cube(name=name, table="t", dimensions=()))
        return CubeStatus(name=name, definition=definition, enabled=True, paused=False)

    def table(self, name: str) -> Any:
        columns = (Column("at", "bigint"),)
        table = Table(name=name, topic="clicks", time=TimeColumn("at", "epoch_ms"), columns=columns)
        return msgspec.to_builtins(table)


class Kafka:
    """A topic of dead letters of one partition, each at its offset."""

    def __init__(self, letters: list[DatedLetter] | None) -> None:
        self.letters = letters

    def older_dead_letters(self, topic: str, before: dict[int, int], records_max: int) -> OlderDeadLetters:
        assert topic == LETTERS
        if self.letters is None:
            raise NotFound(f"there is no topic {topic}")
        stop = min(before.get(0, len(self.letters)), len(self.letters))
        start = max(0, stop - records_max)
        return OlderDeadLetters(tuple(self.letters[start:stop][::-1]), {0: start}, more=start > 0)


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    for right in (reader, asker):
        monkeypatch.setitem(app.dependency_overrides, right, lambda: None)
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook, **_: Coordinator())
    return TestClient(app)


def test_all_records_are_found_some_at_a_time(signed_in: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka([letter(offset) for offset in range(250)])
    monkeypatch.setattr(cube_routes, "open_kafka", lambda _cluster: kafka)
    found: list[int] = []
    answers, before = 0, ""
    while before or not answers:
        answer = signed_in.get("/page/cubes/c/refused", params={"before": before}).raise_for_status()
        seen = msgspec.json.decode(answer.content, type=RefusedRecords)
        found += [each.offset for each in seen.records]
        answers, before = answers + 1, seen.older
    assert (answers, found) == (3, list(range(250))[::-1])


def test_before_anything_is_refused_there_are_none(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cube_routes, "open_kafka", lambda _cluster: Kafka(None))
    answer = signed_in.get("/page/cubes/c/refused").raise_for_status()
    seen = msgspec.json.decode(answer.content, type=RefusedRecords)
    assert (seen.topic, seen.records, seen.older) == (LETTERS, (), "")


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["clicks", "others"]))))
def test_a_record_that_several_receivers_have_refused_is_one(letters: list[tuple[int, str]]) -> None:
    found = OlderDeadLetters(
        tuple(letter(offset, topic=topic) for offset, topic in letters), {0: 7}, more=True
    )
    seen = refused_records(LETTERS, "clicks", found, now_ms=NOW_MS)
    offsets = [each.offset for each in seen.records]
    assert sorted(offsets) == sorted({offset for offset, topic in letters if topic == "clicks"})
    assert offsets_before(seen.older) == {0: 7}


@pytest.mark.parametrize("text", ["x", "[]", '{"a": 1}', '{"0": "b"}', "9" * 30_000])
def test_what_is_no_offsets_is_refused(signed_in: TestClient, text: str) -> None:
    with pytest.raises(DefinitionError, match="these are no offsets"):
        offsets_before(text)
    assert signed_in.get("/page/cubes/c/refused", params={"before": text[:100]}).status_code == 422


def test_who_may_not_ask_sees_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setitem(app.dependency_overrides, asker, refuse)
    monkeypatch.setattr(cube_routes, "open_kafka", lambda _cluster: SimpleNamespace())
    assert TestClient(app).get("/page/cubes/c/refused").status_code == 403

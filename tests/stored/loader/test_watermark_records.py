"""Topics that carry watermarks: their control records are read on from, and are neither rows nor refused."""

from __future__ import annotations

from typing import Any

import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import LoaderRejects
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.states import StopCause
from rtolap.watermark.records.statement import Statement, control_record, stating

from tests.support.loader.loaded_offsets import loaded_offsets
from tests.support.loader.stepped_loader import World, load_all, stopped_by

FIELD = "rtolap_watermark"
FORMS = pytest.mark.parametrize("form", ["header", "field"])


def field_of(form: str) -> str | None:
    return FIELD if form == "field" else None


def control(world: World, form: str, partition: int = 0) -> None:
    world.broker.append("t", control_record(Statement("control", 1, 5, "store-0"), partition, field_of(form)))


def event(world: World, form: str, value: bytes) -> None:
    text = Statement("data", 1, 5, "store-0").encode()
    world.broker.append("t", stating([OutRecord(value, partition=0)], text, field_of(form))[0])


@FORMS
@pytest.mark.parametrize("unknown_columns", ["ignore", "reject"])
def test_control_records_are_no_rows_and_do_not_stop_the_loader(
    world: World, form: Any, unknown_columns: Any
) -> None:
    nullable = (SchemaColumn("k", "BIGINT"), SchemaColumn("v", "BIGINT"))
    world.sink.tables["d", "t"] = TableSchema(properties=nullable)
    world.create(watermark_records=form, unknown_columns=unknown_columns)
    event(world, form, b'{"k": 1, "v": 1}')
    control(world, form)
    event(world, form, b'{"k": 2, "v": 1}')
    control(world, form, partition=1)
    work = world.start()
    load_all(work)
    world.clock.advance_ms(10_000)
    load_all(work)
    assert world.sink.rows("d", "t") == [{"k": 1, "v": 1}, {"k": 2, "v": 1}]
    assert world.box.kept == []
    assert loaded_offsets(world.records, "j") == work.log_ends() == {0: 3, 1: 1}


@FORMS
def test_control_records_only_are_loaded_without_a_request(world: World, form: Any) -> None:
    world.create(watermark_records=form)
    control(world, form)
    control(world, form)
    work = world.start()
    load_all(work)
    last = world.records.all("j")[-1]
    assert (last.end_offsets, last.loaded, last.row_count, last.attempts) == ({0: 2, 1: 0}, True, 0, 0)


@FORMS
def test_a_tolerance_is_of_events_not_of_control_records(world: World, form: Any) -> None:
    world.create(watermark_records=form, rejects=LoaderRejects(tolerance_percent=50))
    event(world, form, b'{"k": "none", "v": 1}')
    control(world, form)
    work = world.start()
    work.source.step(0.0)
    assert stopped_by(lambda: work.settle_once(work.settler())) is StopCause.TOO_MANY_REJECTS
    assert world.box.kept == [(0, 0, "wrong_type")]


def test_a_record_without_a_value_and_without_a_statement_is_refused_as_ever(world: World) -> None:
    world.create(watermark_records="header", rejects=LoaderRejects(tolerance_percent=100))
    control(world, "header")
    world.broker.append("t", OutRecord(None, partition=0))
    load_all(world.start())
    assert world.box.kept == [(0, 1, "tombstone")]


@FORMS
def test_what_is_read_again_knows_its_control_records(world: World, form: Any) -> None:
    world.create(watermark_records=form)
    event(world, form, b'{"k": 1, "v": 1}')
    control(world, form)
    world.start().source.step(0.0)  # recorded, never sent
    work = world.start()
    load_all(work)
    assert world.keys() == [1]
    assert world.box.kept == []

"""Definitions of loaders: read from YAML, and refused with the place of what is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.loader import (
    Loader,
    LoaderApplication,
    LoaderBatch,
    LoaderColumn,
    LoaderRejects,
    LoaderSink,
    SinkBackends,
    SinkMerge,
    SinkPartitions,
)
from rtolap.model.problems import raise_all
from rtolap.model.validation.loader import loader_problems
from rtolap.model.yaml_files import read_definitions

FULL = """
kind: loader
name: flights
topic: flights
kafka_cluster: measurements
database: web
table: flights
columns:
  - {name: at, path: meta.at, format: epoch_ms}
start: latest
batch: {rows: 1000, bytes: 1048576, interval: 2s}
parallel: 3
order: always
unknown_columns: reject
watermark_records: field
watermark_field: mark
rejects: {tolerance_percent: 5, to: file}
sink:
  urls: ["http://endpoint:7030"]
  user: loader
  password_file: /secrets/p
  format: json
  two_phase: true
  timeout: 5m
  label_kept: 3h
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "l.yaml").write_text(FULL)
    assert read_definitions(tmp_path).loaders == {
        "flights": Loader(
            name="flights",
            topic="flights",
            kafka_cluster="measurements",
            database="web",
            table="flights",
            columns=(LoaderColumn("at", "meta.at", "epoch_ms"),),
            start="latest",
            batch=LoaderBatch(rows=1000, bytes=1 << 20, interval_ms=2_000),
            parallel=3,
            order="always",
            unknown_columns="reject",
            watermark_records="field",
            watermark_field="mark",
            rejects=LoaderRejects(tolerance_percent=5, to="file"),
            sink=LoaderSink(
                urls=("http://endpoint:7030",),
                user="loader",
                password_file="/secrets/p",
                format="json",
                two_phase=True,
                timeout_ms=300_000,
                label_kept_ms=10_800_000,
            ),
        )
    }


FOREIGN = """\
kind: loader
name: orders
topic: orders
database: shop
table: orders
order: none
columns:
  - {name: op, path: meta.op, type: string}
  - {name: state, default: new, missing: default}
sink:
  target: doris
  urls: ["https://fe1:8050"]
  format: json
  backends: {plain: ["10.20.0.0/16", "*.be.example.com"], redirect_policy: private}
  sequence_column: changed_at
  merge: {type: merge, delete: "op = 'd'"}
  headers: {partitions: "p1", send_batch_parallelism: "2"}
  label_kept_count: 1000
"""


def test_every_key_of_another_target_is_read(tmp_path: Path) -> None:
    (tmp_path / "l.yaml").write_text(FOREIGN)
    loader = read_definitions(tmp_path).loaders["orders"]
    assert loader.columns == (
        LoaderColumn("op", "meta.op", type="string"),
        LoaderColumn("state", default="new", missing="default"),
    )
    assert (loader.order, loader.sink) == (
        "none",
        LoaderSink(
            target="doris",
            urls=("https://fe1:8050",),
            format="json",
            backends=SinkBackends(("10.20.0.0/16", "*.be.example.com"), "private"),
            sequence_column="changed_at",
            merge=SinkMerge("merge", "op = 'd'"),
            headers={"partitions": "p1", "send_batch_parallelism": "2"},
            label_kept_count=1000,
        ),
    )


def made(**changes: object) -> LoaderSink:
    wanted = SinkPartitions(sql="endpoint:9030", column="at")
    return LoaderSink(partitions=msgspec.structs.replace(wanted, **changes))


PLAIN = Loader(name="l", topic="t", database="d", table="t")


def _check(loader: Loader) -> None:
    raise_all("loader", loader_problems(loader))


def test_a_plain_one_is_sound() -> None:
    _check(PLAIN)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Not A Name"}, "name: not a name"),
        ({"topic": "a/b"}, "topic: not a topic name"),
        ({"batch": LoaderBatch(rows=0)}, "batch.rows: out of bounds"),
        ({"batch": LoaderBatch(interval_ms=1)}, "batch.interval_ms: out of bounds"),
        ({"parallel": 99}, "parallel: out of bounds"),
        ({"rejects": LoaderRejects(tolerance_percent=101)}, "rejects.tolerance_percent: out of bounds"),
        ({"columns": (LoaderColumn("a"), LoaderColumn("a"))}, "columns: column is named twice"),
        ({"sink": LoaderSink(urls=("endpoint:7030",))}, "sink.urls[0]: not an address"),
        ({"sink": LoaderSink(urls=("http://u:secret@endpoint",))}, "sink.urls[0]: not an address"),
        ({"sink": LoaderSink(label_kept_ms=0)}, "sink.label_kept_ms: out of bounds"),
        ({"sink": made(sql="endpoint")}, "sink.partitions.sql: not an address"),
        ({"sink": made(sql="endpoint:70000")}, "sink.partitions.sql: not an address"),
        ({"sink": made(sql="u:p@endpoint:1")}, "sink.partitions.sql: not an address"),
        ({"sink": made(column="at`")}, "sink.partitions.column: not a name"),
        ({"sink": made(ahead=-1)}, "sink.partitions.ahead: out of bounds"),
        ({"sink": made(behind=1001)}, "sink.partitions.behind: out of bounds"),
        ({"sink": made(every_ms=10)}, "sink.partitions.every_ms: out of bounds"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: dict[str, object], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        _check(msgspec.structs.replace(PLAIN, **change))
    assert said in str(refused.value)


def test_a_loader_names_the_level_of_an_application_that_it_is_a_unit_of(tmp_path: Path) -> None:
    (tmp_path / "l.yaml").write_text(FULL + "application: {name: access_logs, level: store, key: 3}\n")
    loader = read_definitions(tmp_path).loaders["flights"]
    assert loader.application == LoaderApplication("access_logs", "store", 3)
    (tmp_path / "l.yaml").write_text(FULL + "application: {name: access_logs, level: 'a b', key: -1}\n")
    with pytest.raises(DefinitionError) as refused:
        read_definitions(tmp_path)
    assert "application.level" in str(refused.value)
    assert "application.key" in str(refused.value)


def test_a_loader_may_make_the_partitions_of_its_table(tmp_path: Path) -> None:
    partitions = "sql: '[::1]:9030', column: at, unit: hour, ahead: 5, behind: 1, every: 30s, user: dora"
    (tmp_path / "l.yaml").write_text(FULL + f"  partitions: {{{partitions}}}\n")
    found = read_definitions(tmp_path).loaders["flights"].sink.partitions
    assert found == SinkPartitions("[::1]:9030", "at", "hour", 5, 1, 30_000, "dora")
    assert found.host_port == ("::1", 9030)
    (tmp_path / "l.yaml").write_text(FULL + "  partitions: {sql: 'h:1', unit: fortnight}\n")
    with pytest.raises(DefinitionError) as refused:
        read_definitions(tmp_path)
    assert "sink.partitions.unit: wrong value; expected one of day, hour" in str(refused.value)
    assert "the key column" in str(refused.value)

"""The contract of a sink that a loader relies on. Subclass it, and say how one with a table is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
import pytest
from rtolap.base.errors import NotFound
from rtolap.model.loader import LoaderFormat
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions
from rtolap.stored.loader.records.encode import encode, format_headers
from rtolap.stored.loader.sink import Sink

ROWS = pa.RecordBatch.from_pydict({"k": [1, 2], "s": ["a", 'q"\\\n,'], "n": [None, 7]})
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())])


@dataclass
class Table:
    """A table. `rows` are what readers see, in any order."""

    sink: Sink
    db: str
    name: str

    def rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def load(
        self, label: str, form: LoaderFormat = "arrow", *, two_phase: bool = False, keep: bool = True
    ) -> LoadAnswer:
        rows = ROWS.cast(SCHEMA)
        options = SendOptions(
            format=form,
            columns=tuple(SCHEMA.names),
            timeout_s=20,
            keep_label=keep,
            headers=format_headers("rtolap", form),
        )
        return self.sink.load(self.db, self.name, label, encode(rows, form), options, two_phase=two_phase)

    def state(self, label: str) -> LoadState:
        return self.sink.state(self.db, label)


def seen(table: Table) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["s"], row["n"] or 0) for row in table.rows())


EXPECTED = [(1, "a", 0), (2, 'q"\\\n,', 7)]


class ClosesLabels(Protocol):
    """What a sink that keeps labels can besides; loaders do not use it."""

    def close_label(self, db: str, label: str) -> LoadState: ...


class SinkContract:
    forms: tuple[LoaderFormat, ...] = ("arrow", "json")

    @pytest.fixture
    def table(self) -> Any:
        """Return an empty duplicate table with `k` bigint not null, `s` string, `n` bigint."""
        raise NotImplementedError

    def test_rows_are_there_once_they_are_acknowledged(self, table: Table) -> None:
        for number, form in enumerate(self.forms, 1):
            label = f"l_1_{number}"
            assert table.state(label) is LoadState.UNKNOWN
            answer = table.load(label, form)
            assert (answer.status, answer.message, answer.label) == ("Success", "OK", label)
            assert answer.number_loaded_rows == 2
            assert table.state(label) in (LoadState.VISIBLE, LoadState.COMMITTED)
            assert seen(table) == sorted(EXPECTED * number)

    def test_a_label_takes_rows_once(self, table: Table) -> None:
        first = table.load("l_1_1")
        again = table.load("l_1_1")
        assert first.is_durable
        assert again.status == "Label Already Exists"
        assert again.existing_job_status == "FINISHED"
        assert f"relate to txn [{first.txn_id}]" in again.message
        assert seen(table) == EXPECTED

    def test_two_phases_show_nothing_before_the_second(self, table: Table) -> None:
        answer = table.load("l_1_1", two_phase=True)
        assert (answer.status, answer.two_phase_commit) == ("Success", "true")
        assert table.state("l_1_1") is LoadState.PRECOMMITTED
        assert seen(table) == []
        held = table.load("l_1_1", two_phase=True)
        assert (held.status, held.existing_job_status) == ("Label Already Exists", "PRECOMMITTED")
        assert table.sink.commit_label(table.db, "l_1_1").status == "Success"
        assert table.state("l_1_1") in (LoadState.VISIBLE, LoadState.COMMITTED)
        again = table.sink.commit_label(table.db, "l_1_1")
        assert again.status == "Fail"
        assert "not pre-committed" in again.msg
        assert seen(table) == EXPECTED

    def test_the_second_phase_of_an_unknown_label_fails(self, table: Table) -> None:
        answer = table.sink.commit_label(table.db, "nobody")
        assert answer.status == "Fail"
        assert "not found" in answer.msg

    def test_a_column_that_the_table_lost_is_passed_over(self, table: Table) -> None:
        other = pa.RecordBatch.from_pydict({"k": [1], "zz": [1]})
        options = SendOptions(columns=("k", "zz"), timeout_s=20, keep_label=True)
        answer = table.sink.load(table.db, table.name, "l_1_1", encode(other, "arrow"), options)
        assert answer.status == "Success"
        assert [row["k"] for row in table.rows()] == [1]

    def test_too_many_filtered_rows_fail_the_load_and_free_the_label(self, table: Table) -> None:
        body = encode(pa.RecordBatch.from_pydict({"k": pa.array([1, None], pa.int64())}), "arrow")
        options = SendOptions(columns=("k",), timeout_s=20, keep_label=True)
        answer = table.sink.load(table.db, table.name, "l_1_1", body, options)
        assert answer.status == "Fail"
        assert "too many filtered rows" in answer.message
        assert table.state("l_1_1") is LoadState.ABORTED
        assert table.rows() == []
        some = SendOptions(columns=("k",), timeout_s=20, keep_label=True, max_filter_ratio=0.5)
        answer = table.sink.load(table.db, table.name, "l_1_1", body, some)
        assert (answer.status, answer.number_loaded_rows, answer.number_filtered_rows) == ("Success", 1, 1)
        assert isinstance(answer.error_url, str)
        assert "null" in table.sink.error_log(answer.error_url).lower()
        with pytest.raises(NotFound):
            table.sink.error_log(answer.error_url[:-1] + ("x" if answer.error_url[-1] != "x" else "y"))
        assert [row["k"] for row in table.rows()] == [1]

    def test_a_table_that_is_not_there(self, table: Table) -> None:
        with pytest.raises(NotFound):
            table.sink.schema(table.db, "no_such_table")
        options = SendOptions(columns=("k",), timeout_s=20)
        body = encode(ROWS.select(["k"]), "arrow")
        assert table.sink.load(table.db, "no_such_table", "l_1_9", body, options).status == "Fail"

    def test_the_schema_tells_names_types_and_nulls(self, table: Table) -> None:
        schema = table.sink.schema(table.db, table.name)
        assert schema.keys_type == "DUP_KEYS"
        assert [(column.name, column.is_nullable) for column in schema.properties] == [
            ("k", "No"),
            ("s", "Yes"),
            ("n", "Yes"),
        ]
        assert [column.type.partition("(")[0] for column in schema.properties] in (
            ["BIGINT", "STRING", "BIGINT"],
            ["BIGINT", "VARCHAR", "BIGINT"],
        )

    def test_labels_stay_until_they_are_acknowledged(self, table: Table) -> None:
        assert table.sink.keeps_labels()
        assert table.load("l_1_1").is_durable
        table.sink.acknowledge(table.db, ["l_1_1", "never_used"])
        table.sink.acknowledge(table.db, ["l_1_1"])

    def test_under_a_closed_label_nothing_is_loaded(self, table: Table) -> None:
        sink = cast(ClosesLabels, table.sink)
        assert table.load("l_1_1").is_durable
        assert sink.close_label(table.db, "l_1_1") in (LoadState.VISIBLE, LoadState.COMMITTED)
        assert table.load("l_1_2", two_phase=True).is_durable
        for label in ("l_1_2", "l_1_3"):
            for _ in range(2):
                assert sink.close_label(table.db, label) is LoadState.ABORTED
            refused = table.load(label)
            assert (refused.status, "is closed" in refused.message) == ("Fail", True)
            assert table.state(label) is LoadState.ABORTED
        assert seen(table) == EXPECTED
        table.sink.acknowledge(table.db, ["l_1_2", "l_1_3"])

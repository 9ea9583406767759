"""The first rows of a result: as many as are asked for, in their order, and nothing is left open."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.base.errors import DefinitionError, Forbidden
from rtolap.query.http.asking_user import asking_user
from rtolap.query.http.first_rows import FirstRows


class Batches:
    """Batches that count up, which know whether they were closed before their end."""

    def __init__(self, sizes: list[int]) -> None:
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        self._left = [
            pa.record_batch({"n": list(range(end - size, end))}, schema=pa.schema([("n", pa.int64())]))
            for size, end in zip(sizes, ends, strict=True)
        ]
        self.open = True

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._left:
            self.close()
            raise StopIteration
        return self._left.pop(0)

    def close(self) -> None:
        self.open = False


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 20))
def test_they_are_the_first_and_the_result_is_closed_with_them(sizes: list[int], rows_max: int) -> None:
    batches = Batches(sizes)
    found = [n for batch in FirstRows(batches, rows_max) for n in batch["n"].to_pylist()]
    assert found == list(range(min(rows_max, sum(sizes))))
    assert not batches.open


def test_a_reader_that_goes_away_closes_the_result() -> None:
    batches = Batches([3, 3])
    FirstRows(batches, 2).close()
    assert not batches.open


@given(st.text(max_size=30), st.text(max_size=30))
def test_nobody_is_asked_for_under_a_name_of_the_users_file(service: str, name: str) -> None:
    try:
        found = asking_user("", f"{service}:{name}")
    except DefinitionError:
        return
    assert found == "" or ":" in found


def test_a_user_asks_as_nobody_else() -> None:
    assert asking_user("ann", "") == "ann"
    assert asking_user("", "airflow:J%C3%BCrgen%20%3Cb%3E") == "airflow:Jürgen <b>"
    with pytest.raises(Forbidden, match="ann may not"):
        asking_user("ann", "airflow:ada")

"""What rows of a result take while they become an answer is reserved before: columns of all kinds, drawn."""

from __future__ import annotations

import gc
import json
import random
import struct
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import OverBudget
from rtolap.query.http import answers
from rtolap.query.memory_budget import MIB, BudgetLimits, MemoryBudget
from rtolap.query.mysql.answers import Answers, Frames
from rtolap.query.mysql.packets import PacketFields
from rtolap.query.mysql.prepared import PreparedStatement, PreparedStatements
from rtolap.query.mysql.result_sets import binary_rows, text_rows
from rtolap.query.statement_outcome import StatementOutcome

from tests.support.seeds import so_many

UNBOUNDED = BudgetLimits(1 << 40, 1 << 40, 1 << 40, 0)
SMALL_BYTES = MIB  # of the test itself, and of what an answer takes however small it is
STRUCT_CELLS_MAX = 100_000  # of a column: each of them is traced
_LETTERS = ("x", "\x01", '"\\', "é", "😀", "x😀\x01")


def _texts(rng: random.Random, rows: int) -> pa.Array:
    letters, length = rng.choice(_LETTERS), 4 * MIB // max(1, rows)
    return pa.array(
        [letters * rng.randrange(1, max(2, length // len(letters.encode()))) for _ in range(rows)]
    )


def _flags(rng: random.Random, rows: int) -> pa.Array:
    return pa.array([rng.random() < 0.5 for _ in range(rows)])


def _structs(rng: random.Random, rows: int) -> pa.Array:
    count = min(rng.choice((2, 30, 500)), max(2, STRUCT_CELLS_MAX // rows))
    of = rng.choice((_flags, _texts)) if count < 30 else _flags
    return pa.StructArray.from_arrays(
        [of(rng, rows) for _ in range(count)], [f"element{number + 1}" for number in range(count)]
    )


_COLUMNS: tuple[Callable[[random.Random, int], pa.Array], ...] = (
    _texts,
    _flags,
    _structs,
    lambda rng, rows: pa.array([rng.randrange(-(2**60), 2**60) for _ in range(rows)]),
    lambda rng, rows: pa.array([rng.random() * 10 ** rng.randrange(-300, 300) for _ in range(rows)]),
    lambda rng, rows: pa.array([Decimal(rng.randrange(10**30)).scaleb(-5) for _ in range(rows)]),
    lambda rng, rows: pa.array([rng.randbytes(2 * MIB // rows) for _ in range(rows)]),
    lambda rng, rows: pa.array([rng.randrange(10**9) for _ in range(rows)], pa.duration("us")),
    lambda rng, rows: pa.array([rng.randrange(10**15) for _ in range(rows)], pa.timestamp("us")),
    lambda rng, rows: pa.nulls(rows),
)


def drawn_batch(rng: random.Random) -> pa.RecordBatch:
    rows, columns = rng.choice(((1, 1), (1, 3), (7, 2), (1_000, 1), (1_000, 4), (8_192, 1), (8_192, 5)))
    arrays = [rng.choice(_COLUMNS)(rng, rows) for _ in range(columns)]
    return pa.record_batch(arrays, names=[f"c{number}" for number in range(columns)])


def peak_bytes(answer: Iterator[object]) -> int:
    """Return the highest memory of Python and Arrow while all of it is read, and nothing kept."""
    gc.collect()
    tracemalloc.start()
    try:
        deque(answer, maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def as_json(batch: pa.RecordBatch, account: Any) -> Iterator[object]:
    return answers.json_pieces(StatementOutcome(batch.schema, iter([batch])), account)


def as_packets(encode: Callable[..., Any]) -> Callable[[pa.RecordBatch, Any], Iterator[object]]:
    class Sent(Frames):
        """The client reads at once."""

        def write(self, payload: bytes | bytearray | memoryview) -> None:
            super().write(payload)
            self.out.clear()

    def answered(batch: pa.RecordBatch, account: Any) -> Iterator[object]:
        Answers(Sent(0), 0, account).result(batch.schema, iter([batch]), encode)
        yield

    return answered


@pytest.mark.seeded
@pytest.mark.parametrize(
    "answer", [as_json, as_packets(text_rows), as_packets(binary_rows)], ids=["JSON", "text", "binary"]
)
@pytest.mark.parametrize("seed", range(so_many(6, 12)))
def test_an_answer_takes_no_more_than_was_reserved_for_it(answer: Callable[..., Any], seed: int) -> None:
    batch = drawn_batch(random.Random(seed))
    budget = MemoryBudget(UNBOUNDED)
    most = 0

    class Noted:
        """An account that keeps the most it had."""

        def __init__(self) -> None:
            self._account = budget.account("ann")

        def reserve(self, what: str, size_bytes: int) -> None:
            nonlocal most
            self._account.reserve(what, size_bytes)
            most = max(most, self._account.reserved_bytes)

    found = peak_bytes(answer(batch, Noted()))
    assert found <= most - batch.nbytes + SMALL_BYTES, (seed, batch.schema.types, batch.num_rows)


def test_long_texts_are_the_same_json_in_parts() -> None:
    account = MemoryBudget(UNBOUNDED).account("ann")
    texts = ['x😀\x01"\\é' * 200_000, "", None]
    columns = [texts, [1, 2, None], [[{"a": texts[0]}], None, []]]
    batch = pa.record_batch([pa.array(column) for column in columns], names=["t", "n", "s"])
    for rows in (batch, batch.slice(0, 1), batch.slice(1)):
        found = json.loads(b"".join(as_json(rows, account)))
        assert found["rows"] == [
            list(row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)
        ]


def test_an_answer_that_nobody_reads_counts_until_it_is_sent() -> None:
    account = MemoryBudget(UNBOUNDED).account("ann")
    batch = pa.record_batch([pa.array(["x" * 1000] * 100)], names=["t"])
    outcome = StatementOutcome(batch.schema, iter([batch]))
    answer = answers.Answer(answers.json_pieces(outcome, account), outcome, account)
    answer.begin()
    assert answer.whole is not None
    assert account.reserved_bytes >= len(answer.whole)
    answer.close()
    assert account.reserved_bytes == 0


def test_long_data_that_is_refused_is_not_kept_by_its_refusal() -> None:
    limit = 4 * MIB
    account = MemoryBudget(BudgetLimits(limit, limit, limit, 0)).account("ann")
    held = PreparedStatements(account)
    identities = [
        held.add_statement(PreparedStatement("select ?", pa.schema([]), ("p1",))) for _ in range(50)
    ]
    gc.disable()
    tracemalloc.start()
    try:
        for identity in identities:
            for _ in range(3):
                held.long_data(PacketFields(struct.pack("<IH", identity, 0) + bytes(MIB)))
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert kept_bytes < limit + MIB
    with pytest.raises(OverBudget, match="long data"):
        held.bound(PacketFields(struct.pack("<IBI", identities[-1], 0, 1)))

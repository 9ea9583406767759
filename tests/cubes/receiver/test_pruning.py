"""Memory tables that a predicate excludes are not read, and no answer changes for it."""

from __future__ import annotations

import json
import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.core.partition_progress import ConsumerProgress
from rtolap.cubes.receiver.local.batch import batch_tables
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalState, TableStatistics
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import SegmentPolicy
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema

HOUR_MS = 3_600_000
SCHEMA = small_schema(segment=SegmentPolicy(window_ms=HOUR_MS))
FIRST_MS = START_MS // HOUR_MS * HOUR_MS
EVENTS_A_TABLE = 4
ROWS = (4, 4, 4, 4, 1)  # of each table: what has no place rolls up


def _state() -> LocalState:
    """Table n of five: minute n, kind `k<n>` but in the first, places 10 n to 10 n + 3 but in the last."""
    decoder, tables = EventDecoder(SCHEMA), []
    for number in range(5):
        rows = [
            {
                "ts": FIRST_MS + number * WINDOW_MS,
                "kind": f"k{number}" if number else None,
                "place": 10 * number + at if number < 4 else None,
                "amount": at,
            }
            for at in range(EVENTS_A_TABLE)
        ]
        offsets = np.arange(EVENTS_A_TABLE, dtype=np.int64) + EVENTS_A_TABLE * number
        decoded = decoder.decode(
            [json.dumps(row).encode() for row in rows],
            np.zeros(EVENTS_A_TABLE, np.int32),
            offsets,
            now_ms=FIRST_MS,
        )
        tables += batch_tables(SCHEMA, decoded.table, {}, None).tables[FIRST_MS]
    positions = {0: 5 * EVENTS_A_TABLE}
    segments = {FIRST_MS: LocalSegment(FIRST_MS, tuple(tables))}
    return LocalState(positions=positions, segments=segments, assignment_epoch=1)


def _ask(state: LocalState, predicate: Predicate | None) -> tuple[list[dict[str, object]], PartialAnswer]:
    partials = ("__rows", "amount__sum")
    query = PartialQuery(
        SCHEMA.cube.name, ("minute_start", "kind", "place"), partials, HistorySnapshot(), predicate
    )
    table: pa.Table = answer(
        SCHEMA, state, query, owned=(0,), receiver_id="r", progress=ConsumerProgress(idle_after_s=3.0)
    )
    said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
    return sorted(table.to_pylist(), key=str), said


@pytest.mark.parametrize(
    ("predicate", "tables_read"),
    [
        (None, (0, 1, 2, 3, 4)),
        (Compare("kind", "eq", "k2"), (2,)),
        (Compare("kind", "eq", "k"), ()),
        (Compare("kind", "ne", "k1"), (2, 3, 4)),
        (In("kind", ("k1", "k3")), (1, 3)),
        (Like("kind", "k%"), (1, 2, 3, 4)),
        (Like("kind", "x%"), ()),
        (Compare("place", "ge", 20), (2, 3)),
        (Compare("place", "lt", 0), ()),
        (IsNull("place"), (4,)),
        (IsNull("kind", negated=True), (1, 2, 3, 4)),
        (And((Compare("kind", "ne", "k1"), Compare("place", "le", 13))), ()),
        (Or((Compare("kind", "eq", "k1"), Compare("place", "eq", 32))), (1, 3)),
        (Not(Compare("kind", "eq", "k2")), (0, 1, 2, 3, 4)),
    ],
)
def test_a_table_that_cannot_match_is_not_read(
    predicate: Predicate | None, tables_read: tuple[int, ...]
) -> None:
    said = _ask(_state(), predicate)[1]
    assert said.rows_scanned == sum(ROWS[number] for number in tables_read)
    assert said.rows_pruned == sum(ROWS) - said.rows_scanned


def test_times_prune_too() -> None:
    state = _state()
    (start,) = set(state.segments[FIRST_MS].tables[3].table.column("minute_start").to_pylist())
    rows, said = _ask(state, Compare("minute_start", "ge", str(start)))
    assert len(rows) == said.rows_scanned == ROWS[3] + ROWS[4]


def _leaf(random_: random.Random) -> Predicate:
    kind, place = random_.choice(("k0", "k1", "k2", "k4", "z")), random_.randrange(-5, 50)
    operator = random_.choice(("eq", "ne", "lt", "le", "gt", "ge"))
    return random_.choice(
        (
            Compare("kind", operator, kind),
            Compare("place", operator, place),
            In("kind", (kind, "k3", None), negated=random_.random() < 0.3),
            In("place", (place, 11, 33), negated=random_.random() < 0.3),
            IsNull(random_.choice(("kind", "place")), negated=random_.random() < 0.5),
            Like("kind", random_.choice(("k%", "%2", "_4", "z")), negated=random_.random() < 0.3),
        )
    )


def _tree(random_: random.Random, depth: int) -> Predicate:
    if depth == 0 or random_.random() < 0.3:
        return _leaf(random_)
    terms = tuple(_tree(random_, depth - 1) for _ in range(random_.randrange(1, 4)))
    return random_.choice((And(terms), Or(terms), Not(terms[0])))


def test_answers_with_and_without_pruning_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random_, state = random.Random(11), _state()
    predicates = [_tree(random_, 3) for _ in range(300)]
    pruned = [_ask(state, predicate) for predicate in predicates]
    assert sum(said.rows_pruned > 0 for _, said in pruned) > 50, "a test that hardly prunes proves little"
    monkeypatch.setattr(TableStatistics, "excludes", lambda self, predicate: False)
    for predicate, (rows, _) in zip(predicates, pruned, strict=True):
        assert rows == _ask(state, predicate)[0], predicate

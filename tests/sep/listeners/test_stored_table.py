import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from rtolap.base.errors import (
    CommitUnknown,
    Corrupted,
    DefinitionError,
    IllegalTransition,
    NotFound,
    NotLeader,
    Refused,
    RowsRefused,
    RtolapError,
    TooLarge,
    TooManyAtOnce,
    TooSlow,
    Unavailable,
)
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SchemaColumn,
    SendOptions,
    TableSchema,
)
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.delivery.row_ranges import CLOCKS_APART_MS
from rtolap.sep.events.edit_batch import CellType, EditBatch
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.stored_table import TIMEOUT_S, StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows
from rtolap.sep.rows.reader import ReadRows

from tests.sep.delivery.test_delivery import LETTERS, journal_of, run
from tests.support.sep.batches import Cell, Event, batch_of
from tests.support.sep.row_lives import ModelRows
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.loader_sink import MemorySink

COLUMNS = EventColumns(
    {"a": ColumnSource(b"cf", b"a", "long"), "b": ColumnSource(b"cf", b"b", "string")}, ("id", "string")
)
PROPERTIES = tuple(
    SchemaColumn(name, kind)
    for name, kind in (("id", "VARCHAR"), ("a", "BIGINT"), ("b", "STRING"), ("sequence_id", "BIGINT"))
)
UNIQUE = TableSchema(keys_type="UNIQUE_KEYS", properties=PROPERTIES, sequence_column="sequence_id")
DUPLICATE = TableSchema(properties=(*PROPERTIES, SchemaColumn("operation", "STRING")))
WAIT_MS = TIMEOUT_S * 1000 + CLOCKS_APART_MS + 1


class Endpoint(MemorySink):
    """A front end whose answers may be lost; `asked` are the loads that reached it, which get `refusal`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now_ms=clock.now_ms)
        self.asked: list[SendOptions] = []
        self.lose: Callable[[], str | None] = lambda: None
        self.refusal: RtolapError | None = None

    def load(self, *arguments: Any, **named: Any) -> LoadAnswer:
        lost = self.lose()
        if lost == "request":
            raise Unavailable("the request is lost")
        self.asked.append(arguments[4])
        if self.refusal is not None:
            return LoadAnswer(label=arguments[2], message=str(self.refusal), code=self.refusal.code)
        answer = super().load(*arguments, **named)
        if lost == "answer":
            raise Unavailable("the answer is lost")
        return answer

    def close(self) -> None: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def endpoint(clock: ManualClock) -> Endpoint:
    endpoint = Endpoint(clock)
    endpoint.tables["shop", "orders"] = DUPLICATE
    return endpoint


@pytest.fixture
def open_process(endpoint: Endpoint, clock: ManualClock) -> Callable[..., Delivery]:
    broker = MemoryBroker()
    broker.create(LETTERS, 1)

    def make(policy: PoisonPolicy = PoisonPolicy(), rewrite_records: int = 1000) -> Delivery:
        rows = TableRows(COLUMNS, endpoint.schema("shop", "orders"))
        listener = StoredTableListener(endpoint, "shop", "orders", rows, clock, "sep")
        journal = journal_of(broker, rewrite_records)
        return Delivery(listener, journal, clock, policy=policy, dead_letter_topic=LETTERS)

    return make


def put(at: int, row: bytes = b"r", **values: bytes) -> Event:
    cells = tuple(Cell(name.encode(), value, timestamp_ms=at) for name, value in values.items())
    return Event("region", at, row, at, cells=cells)


def delete(at: int, row: bytes = b"r") -> Event:
    return Event("region", at, row, at, cells=(Cell(b"", type=CellType.DELETE_FAMILY, timestamp_ms=at),))


def number(value: int) -> bytes:
    return struct.pack(">q", value)


def batch(*ids: int) -> EditBatch:
    return batch_of([put(at, b"%d" % at, a=number(at), b=b"x") for at in ids])


def loaded(endpoint: Endpoint) -> list[int]:
    return [row["a"] for row in endpoint.rows("shop", "orders")]


def test_a_duplicate_table_gets_every_event_as_a_row(
    endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    process = open_process()
    events = [put(1, a=number(5)), put(2, b=b"x"), delete(3)]
    assert run(process, batch_of(events), batch_of(events)) == [None, None]
    rows = endpoint.rows("shop", "orders")
    assert [(row["id"], row["a"], row["b"], row["sequence_id"], row["operation"]) for row in rows] == [
        ("r", 5, None, 1, "put"),
        ("r", None, "x", 2, "put"),
        ("r", None, None, 3, "delete"),
    ]
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_load_whose_request_or_answer_is_lost_is_loaded_once(
    lost: str, endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    process = open_process()
    losses = iter([lost])
    endpoint.lose = lambda: next(losses, None)
    assert run(process, batch(1, 2)) == [None]
    assert loaded(endpoint) == [1, 2]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("reached", ["not", "half", "whole"])
def test_a_successor_finds_out_what_became_of_a_load_that_was_under_way(
    reached: str, endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    """And loads it at once where it was not taken: what was begun is aborted, what is on its way is late."""
    process = open_process()
    first: list[tuple[Any, ...]] = []
    load = endpoint.load

    def killed_in_mid_load(*arguments: Any, **named: Any) -> LoadAnswer:
        first.append(arguments)
        if reached == "half":
            endpoint.begin(*arguments[:3], arguments[4], two_phase=False)
        if reached == "whole":
            load(*arguments, **named)
        raise Killed

    endpoint.load = killed_in_mid_load  # type: ignore[method-assign]
    with pytest.raises(Killed):
        run(process, batch(1, 2))
    endpoint.load = load  # type: ignore[method-assign]
    successor = open_process()
    assert run(successor, batch(1, 2, 3)) == [None]
    assert load(*first[0]).status != "Success"
    assert loaded(endpoint) == [1, 2, 3]
    assert successor.counts.duplicates == (2 if reached == "whole" else 0)


def test_a_load_that_turns_out_to_be_there_is_not_loaded_again_by_the_next_group(
    endpoint: Endpoint, open_process: Callable[..., Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = open_process()

    def unavailable(*_: object) -> LoadState:
        raise Unavailable("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(endpoint, "close_label", unavailable)
        endpoint.lose = lambda: "answer"
        [error] = run(process, batch(1, 2))
        assert isinstance(error, Unavailable)
    endpoint.lose = lambda: None
    assert run(process, batch(1, 2, 3)) == [None]
    assert loaded(endpoint) == [1, 2, 3]
    assert process.counts.duplicates == 2


def test_requests_that_are_all_lost_cost_no_event_a_try(
    endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    process = open_process(PoisonPolicy("skip", 1))
    endpoint.lose = lambda: "request"
    for _ in range(3):
        [error] = run(process, batch(1))
        assert isinstance(error, Unavailable)
        assert "are not answered" in str(error)
    endpoint.lose = lambda: None
    assert run(process, batch(1)) == [None]
    assert loaded(endpoint) == [1]
    assert process.counts.dead_letters == 0


OF_THE_CLUSTER = (
    Unavailable("Failed to commit txn 7, cause tablet t succ replica num 1 < quorum replica num 2"),
    NotLeader("no front end is master"),
    TooManyAtOnce("current running txns on db shop is 100, larger than limit 100"),
    CommitUnknown("the ledger has not answered"),
    IllegalTransition("transaction [7] is already aborted"),
    Refused("the request comes too late"),
    TooSlow("the body did not come in time"),
    NotFound("unknown table, tableName=orders"),
    DefinitionError("header columns"),
    RtolapError("a fault of the front end"),
)


@pytest.mark.parametrize("policy", [PoisonPolicy("retry"), PoisonPolicy("skip", 1), PoisonPolicy("stop", 1)])
@pytest.mark.parametrize("refusal", OF_THE_CLUSTER, ids=lambda refusal: refusal.code)
def test_loads_that_the_cluster_cannot_take_cost_no_event_a_try(
    policy: PoisonPolicy,
    refusal: RtolapError,
    endpoint: Endpoint,
    open_process: Callable[..., Delivery],
    clock: ManualClock,
) -> None:
    process = open_process(policy)
    endpoint.refusal = refusal
    pauses_s = []
    for _ in range(4):
        [error] = run(process, batch(1, 2, 3))
        assert isinstance(error, Unavailable)
        assert process.last_error is not None
        assert str(refusal) in process.last_error
        pauses_s.append(process.resumes_s - clock.monotonic_s())
    assert pauses_s == [1.0, 2.0, 4.0, 8.0]
    assert len(endpoint.asked) == 4  # the group was not parted
    assert (process.stopped, process.counts.dead_letters, len(process.failing)) == (None, 0, 0)
    endpoint.refusal = None
    assert run(process, batch(1, 2, 3)) == [None]
    assert loaded(endpoint) == [1, 2, 3]
    assert (process.last_error, process.counts.dead_letters) == (None, 0)


@pytest.mark.parametrize(
    "refusal", [RowsRefused("too many filtered rows"), TooLarge("too long"), Corrupted("torn")]
)
def test_a_load_that_is_refused_for_what_it_holds_is_tried_event_by_event_and_counts(
    refusal: RtolapError, endpoint: Endpoint, open_process: Callable[..., Delivery], clock: ManualClock
) -> None:
    process = open_process(PoisonPolicy("skip", 2))
    endpoint.refusal = refusal
    assert isinstance(run(process, batch(1, 2))[0], Unavailable)
    assert [event.tries for event in process.failing.events.values()] == [1, 0]
    assert process.last_error is None
    for _ in range(3):
        clock.advance_ms(60_000)
        answers = run(process, batch(1, 2))
    assert answers == [None]
    assert process.counts.dead_letters == 2


def tries(process: Delivery) -> dict[int, int]:
    return {key[1]: event.tries for key, event in process.failing.events.items()}


def test_an_event_that_failed_before_is_not_blamed_for_the_outage_that_follows(
    endpoint: Endpoint, open_process: Callable[..., Delivery], clock: ManualClock
) -> None:
    """And what the group has loaded by then is known to be delivered."""
    process = open_process(PoisonPolicy("skip", 2))
    endpoint.refusal = RowsRefused("too many filtered rows")
    run(process, batch(2, 1))
    assert tries(process) == {2: 1, 1: 0}
    endpoint.refusal, load = None, endpoint.load

    def away_after_one(*arguments: Any, **named: Any) -> LoadAnswer:
        answer = load(*arguments, **named)
        endpoint.refusal = OF_THE_CLUSTER[0]
        return answer

    endpoint.load = away_after_one  # type: ignore[method-assign]
    for _ in range(3):
        clock.advance_ms(60_000)
        assert isinstance(run(process, batch(1, 2))[0], Unavailable)
    assert loaded(endpoint) == [1]
    assert tries(process) == {2: 1}
    assert process.counts.delivered == 1
    endpoint.load, endpoint.refusal = load, None  # type: ignore[method-assign]
    assert run(process, batch(1, 2)) == [None]
    assert loaded(endpoint) == [1, 2]
    assert process.counts.dead_letters == 0


def test_a_request_that_arrives_when_its_load_was_given_up_is_not_taken(
    endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    process = open_process()
    first: list[tuple[Any, ...]] = []
    load = endpoint.load

    def late(*arguments: Any, **named: Any) -> LoadAnswer:
        if not first:
            first.append(arguments)
            raise Unavailable("the request is on its way")
        return load(*arguments, **named)

    endpoint.load = late  # type: ignore[method-assign]
    assert run(process, batch(1, 2)) == [None]
    answer = load(*first[0])
    assert (answer.status, "is closed" in answer.message) == ("Fail", True)
    assert loaded(endpoint) == [1, 2]


def test_a_row_that_the_table_refuses_is_found_and_the_others_are_loaded(
    endpoint: Endpoint, open_process: Callable[..., Delivery]
) -> None:
    properties = tuple(
        SchemaColumn(each.name, each.type, is_nullable="No" if each.name == "a" else "Yes")
        for each in DUPLICATE.properties
    )
    endpoint.tables["shop", "orders"] = TableSchema(properties=properties)
    process = open_process(PoisonPolicy("skip", 1))
    events = [put(at, b"%d" % at, a=number(at)) for at in range(5)] + [put(7, b"7", b=b"no number")]
    assert run(process, batch_of(events)) == [None]
    assert sorted(loaded(endpoint)) == [0, 1, 2, 3, 4]
    assert process.counts.dead_letters == 1


def test_labels_are_given_back_once_no_request_of_theirs_is_taken(
    endpoint: Endpoint, open_process: Callable[..., Delivery], clock: ManualClock
) -> None:
    process = open_process()
    run(process, batch(1))
    run(process, batch(2))
    assert list(endpoint.labels("shop").values()) == [LoadState.VISIBLE] * 2
    clock.advance_ms(WAIT_MS)
    run(process, batch(3))
    assert len(endpoint.labels("shop")) == 1


def test_labels_are_given_back_by_a_successor_though_the_journal_was_rewritten(
    endpoint: Endpoint, open_process: Callable[..., Delivery], clock: ManualClock
) -> None:
    process = open_process(rewrite_records=4)
    for at in range(5):
        run(process, batch(at))
    clock.advance_ms(WAIT_MS)
    run(open_process(), batch(9))
    assert len(endpoint.labels("shop")) == 1
    assert loaded(endpoint) == [0, 1, 2, 3, 4, 9]


class Source(ModelRows):
    """Rows of a model; `read_rows` are those that were read, a list for each time."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.read_rows: list[list[bytes]] = []
        self.away = False
        super().__init__(self._written, ((b"cf", b"a"), (b"cf", b"b")))

    def read(self, table: str, rows: Sequence[bytes], at_least: Mapping[str, int]) -> Iterator[ReadRows]:
        if self.away:
            raise Unavailable("the region is on its way")
        self.read_rows.append(sorted(rows))
        self.at_least = dict(at_least)
        return super().read(table, rows, at_least)

    def _written(self, row: bytes) -> list[tuple[int, tuple[Cell, ...]]]:
        return [(event.sequence_id, event.cells) for event in self.events if event.row == row]


@pytest.fixture
def mirror(endpoint: Endpoint, clock: ManualClock) -> Callable[..., tuple[Delivery, Source]]:
    def make(
        events: list[Event],
        policy: PoisonPolicy = PoisonPolicy(),
        schema: TableSchema = UNIQUE,
        *,
        deletes: bool = True,
    ) -> tuple[Delivery, Source]:
        broker = MemoryBroker()
        broker.create(LETTERS, 1)
        endpoint.tables["shop", "orders"] = schema
        source = Source(events)
        rows = TableRows(COLUMNS, endpoint.schema("shop", "orders"), source, deletes=deletes)
        listener = StoredTableListener(endpoint, "shop", "orders", rows, clock, "sep")
        return Delivery(listener, journal_of(broker), clock, policy=policy, dead_letter_topic=LETTERS), source

    return make


Mirrors = Callable[..., tuple[Delivery, Source]]


def test_a_changed_row_is_read_again_once_and_loaded_as_it_is(endpoint: Endpoint, mirror: Mirrors) -> None:
    events = [
        put(1, b"x", a=number(1), b=b"1"),
        put(2, b"y", a=number(2)),
        put(3, b"x", a=number(3)),
        delete(4, b"z"),
        Event("region", 5, b"y", 5, cells=(Cell(b"b", b"older", timestamp_ms=1),)),
    ]
    process, source = mirror(events)
    assert run(process, batch_of(events)) == [None]
    assert source.read_rows == [[b"x", b"y", b"z"]]
    assert source.at_least == {"region": 5}
    loads = [(each.headers, each.columns) for each in endpoint.asked]
    whole, keys = ("id", "a", "b", "sequence_id"), ("id", "sequence_id")
    assert loads.count(({}, whole)) == 1  # the model reads two rows at a time
    assert loads.count(({"merge_type": "DELETE"}, keys)) == 1
    rows = endpoint.rows("shop", "orders")
    found = {row["id"]: (row.get("a"), row.get("b")) for row in rows}
    assert found == {"x": (3, "1"), "y": (2, "older"), "z": (None, None)}


def test_numbers_of_loads_grow_also_for_a_successor_whose_clock_is_behind(
    endpoint: Endpoint, clock: ManualClock
) -> None:
    broker = MemoryBroker()
    endpoint.tables["shop", "orders"] = UNIQUE
    events = [put(at, b"x", a=number(at)) for at in range(1, 9)]
    for first in range(0, 8, 2):
        rows = TableRows(COLUMNS, UNIQUE, Source(events))
        behind = ManualClock(clock.now_ms() - 10_000 * first)
        listener = StoredTableListener(endpoint, "shop", "orders", rows, behind, "sep")
        process = Delivery(listener, journal_of(broker, 4), behind)
        for event in events[first : first + 2]:
            assert run(process, batch_of([event])) == [None]
    numbers = [row["sequence_id"] for row in endpoint.rows("shop", "orders")]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 8
    assert numbers[0] == clock.now_ms() + CLOCKS_APART_MS


def test_rows_that_cannot_be_read_now_cost_no_event_a_try(endpoint: Endpoint, mirror: Mirrors) -> None:
    process, source = mirror([put(1, a=number(1))], PoisonPolicy("skip", 1))
    source.away = True
    assert isinstance(run(process, batch_of(source.events))[0], Unavailable)
    assert (process.counts.dead_letters, len(process.failing), endpoint.asked) == (0, 0, [])
    source.away = False
    assert run(process, batch_of(source.events)) == [None]


def test_a_value_that_is_mended_before_its_event_comes_is_fine(endpoint: Endpoint, mirror: Mirrors) -> None:
    bad, good = put(1, a=b"no number"), put(2, a=number(7))
    process, _ = mirror([bad, good])
    assert run(process, batch_of([bad])) == [None]
    assert loaded(endpoint) == [7]


def test_a_bad_value_is_blamed_on_all_events_of_its_row_and_no_others(
    endpoint: Endpoint, mirror: Mirrors
) -> None:
    events = [put(1, b"x", a=b"bad"), put(2, b"y", a=number(2)), put(3, b"x", b=b"t")]
    process, _ = mirror(events, PoisonPolicy("skip", 1))
    assert run(process, batch_of(events)) == [None]
    assert loaded(endpoint) == [2]
    assert process.counts.dead_letters == 2


def test_a_row_that_is_gone_stays_where_deletes_are_ignored(endpoint: Endpoint, mirror: Mirrors) -> None:
    events = [put(1, b"x", a=number(1)), delete(2, b"x"), put(3, b"y", a=number(3))]
    process, _ = mirror(events, deletes=False)
    assert run(process, batch_of(events)) == [None]
    assert loaded(endpoint) == [3]
    assert process.counts.delivered == 3


def test_columns_that_are_not_declared_stay_as_they_are(endpoint: Endpoint, mirror: Mirrors) -> None:
    schema = TableSchema(keys_type="UNIQUE_KEYS", properties=(*PROPERTIES, SchemaColumn("own", "STRING")))
    process, _ = mirror([put(1, a=number(1))], schema=schema)
    assert run(process, batch_of([put(1, a=number(1))])) == [None]
    assert [each.headers for each in endpoint.asked] == [{"partial_columns": "true"}]


def test_a_unique_table_with_another_sequence_column_is_refused() -> None:
    schema = TableSchema(keys_type="UNIQUE_KEYS", properties=PROPERTIES, sequence_column="a")
    with pytest.raises(DefinitionError, match="sequence column"):
        TableRows(COLUMNS, schema)
    with pytest.raises(DefinitionError, match="lacks columns"):
        TableRows(COLUMNS, TableSchema(properties=PROPERTIES[:2]))

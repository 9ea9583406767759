import struct
from collections.abc import Callable
from typing import Any

import pytest
from rtolap.base.clock import ManualClock
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
from rtolap.kafka.memory.broker import MemoryBroker
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SchemaColumn,
    SendOptions,
    TableSchema,
)
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.events.edit_batch import CellType, EditBatch
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.stored_table import CLOCKS_APART_MS, TIMEOUT_S, StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows
from rtolap.stored.loader.sinks.memory import MemorySink

from tests.sep.delivery.test_delivery import LETTERS, journal_of, run
from tests.support.sep.batches import Cell, Event, batch_of

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
        assert process.trouble is not None
        assert str(refusal) in process.trouble
        pauses_s.append(process.resumes_s - clock.monotonic_s())
    assert pauses_s == [1.0, 2.0, 4.0, 8.0]
    assert len(endpoint.asked) == 4  # the group was not parted
    assert (process.stopped, process.counts.dead_letters, len(process.failing)) == (None, 0, 0)
    endpoint.refusal = None
    assert run(process, batch(1, 2, 3)) == [None]
    assert loaded(endpoint) == [1, 2, 3]
    assert (process.trouble, process.counts.dead_letters) == (None, 0)


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
    assert process.trouble is None
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


def test_loads_of_a_unique_table_keep_the_order_of_each_row() -> None:
    rows = TableRows(COLUMNS, UNIQUE)
    events = [
        put(1, b"x", a=number(1), b=b"1"),
        put(2, b"y", a=number(2)),
        put(3, b"x", a=number(3)),
        delete(4, b"x"),
        put(5, b"x", a=number(5), b=b"5"),
        put(6, b"y", a=number(6)),
    ]
    loads, refused = rows.loads(batch_of(events), [False] * 6)  # type: ignore[arg-type]
    assert not refused
    place_of = {place: at for at, load in enumerate(loads) for place in load.places.tolist()}
    assert sorted(place_of) == list(range(6))
    for row in (b"x", b"y"):
        at = [place_of[place] for place, event in enumerate(events) if event.row == row]
        assert at == sorted(at)
    described = {tuple(load.rows.schema.names): (load.partial, load.deletes) for load in loads}
    assert described == {
        ("id", "a", "b", "sequence_id"): (False, False),
        ("id", "a", "sequence_id"): (True, False),
        ("id", "sequence_id"): (False, True),
    }


def test_a_unique_table_without_a_sequence_column_is_refused() -> None:
    with pytest.raises(DefinitionError, match="sequence column"):
        TableRows(COLUMNS, TableSchema(keys_type="UNIQUE_KEYS", properties=PROPERTIES))
    with pytest.raises(DefinitionError, match="lacks columns"):
        TableRows(COLUMNS, TableSchema(properties=PROPERTIES[:2]))

"""Dead letters of a loader: replayed once, dropped, refused again, in drawn orders, with deaths between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, Refused
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.model.loader import LoaderColumn, LoaderRejects
from rtolap.protocols.loader.letters import DropRequest, LetterSelection, ReplayRequest
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.job import read_config, write_config
from rtolap.stored.loader.letters.access import LetterAccess, LetterPlace
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letters import DeadLetters

from tests.support.loader.letter_runs import LetterRun, shown
from tests.support.loader.stepped_loader import COLUMNS, World, load_all, stopped_by
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock

SEEDS = 40
STRICT = TableSchema(
    properties=(SchemaColumn("k", "BIGINT", is_nullable="No"), SchemaColumn("v", "BIGINT", is_nullable="No"))
)
MILD = TableSchema(properties=COLUMNS)
TOLERANT = LoaderRejects(tolerance_percent=100)


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "letters.db", clock=clock, sleep=lambda _: None) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def world(ledger: Ledger, clock: ManualClock) -> World:
    world = World(ledger, clock)
    world.sink.tables["d", "t"] = STRICT
    return world


@pytest.fixture
def letters(ledger: Ledger, world: World) -> LetterAccess:
    return LetterAccess(
        "j",
        world.jobs,
        DeadLetters(ledger),
        lambda: frozenset(each.label for each in world.records.all("j") if not each.loaded),
        lambda _: LetterPlace(
            lambda newest: list(world.box.letters[-newest:] if newest else world.box.letters), topic="d"
        ),
        lambda _: world.sink,
        world.clock,
    )


def states(letters: LetterAccess) -> dict[tuple[int, int], str]:
    return {(each.partition, each.offset): each.state for each in letters.list(100).letters}


def loaded(world: World) -> None:
    """Load all of the topic, also what does not fill a batch."""
    work = world.start()
    load_all(work)
    world.clock.advance_ms(10_000)
    load_all(work)
    work.ownership.release()


def test_a_letter_of_a_batch_that_stopped_the_loader_is_not_replayed_because_the_batch_still_loads_it(
    letters: LetterAccess, world: World
) -> None:
    world.create()  # tolerates nothing
    world.produce(b'{"k": 1}', 2)
    stopped_by(lambda: load_all(world.start()))
    assert states(letters) == {(0, 0): "PENDING"}
    world.sink.tables["d", "t"] = MILD
    assert letters.replay(ReplayRequest(who="p")).loaded == 0
    loaded(world)
    assert world.keys() == [1, 2]
    assert states(letters) == {(0, 0): "NOT_OPEN"}
    assert letters.replay(ReplayRequest(who="p")).loaded == 0
    assert world.keys() == [1, 2]


def test_letters_say_what_became_of_them(letters: LetterAccess, world: World) -> None:
    world.create(rejects=TOLERANT)
    world.produce(b'{"k": 1}', b'{"k": 2}', b"{", b'{"k": 4, "v": 1}')
    loaded(world)
    world.box.letters.insert(0, KeptLetter(0, 9, b"old", {"reason": b"r"}))
    world.box.letters.append(KeptLetter(-1, 7, b"rows", {"reason": b"r"}))
    assert states(letters) == {(-1, 7): "OF_BATCH", (0, 9): "UNKNOWN", **{(0, at): "OPEN" for at in range(3)}}
    world.sink.tables["d", "t"] = MILD
    done = letters.replay(ReplayRequest(who="ann", selection=LetterSelection(places=("0/1",))))
    assert (done.loaded, done.refused, len(done.labels)) == (1, 0, 1)
    nothing = DropRequest(who="bob", why="w", selection=LetterSelection(reason="nope"))
    assert letters.drop(nothing).dropped == 0
    first = DropRequest(who="bob", why="w", selection=LetterSelection(places=("0/0",)))
    assert letters.drop(first).dropped == 1
    assert letters.replay(ReplayRequest(who="p")).refused == 1
    found = {each.offset: each for each in letters.list(100).letters}
    assert (found[1].state, found[1].replay, found[1].who) == ("REPLAYED", done.labels[0], "ann")
    assert (found[0].state, found[0].who, found[0].note) == ("DROPPED", "bob", "w")
    assert (found[2].state, found[2].note.partition(":")[0]) == ("OPEN", "refused again")
    assert world.keys() == [2, 4]
    assert [each.offset for each in letters.list(9, state="OPEN").letters] == [2]
    with pytest.raises(DefinitionError, match="not the place"):
        letters.replay(ReplayRequest(who="p", selection=LetterSelection(places=("7",))))


def test_an_old_record_takes_the_place_of_no_newer_row_unless_that_is_meant(
    letters: LetterAccess, world: World
) -> None:
    world.create(rejects=TOLERANT, order="always")
    world.produce(b'{"k": 1}')
    loaded(world)
    world.sink.tables["d", "t"] = MILD
    with pytest.raises(Refused, match="have an order"):
        letters.replay(ReplayRequest(who="p"))
    assert letters.replay(ReplayRequest(who="p", out_of_order=True)).loaded == 1


def test_nothing_is_replayed_into_a_server_that_cannot_close_a_label(
    letters: LetterAccess, world: World
) -> None:
    world.create(rejects=TOLERANT)
    world.sink.keeps_labels = lambda: False
    with pytest.raises(Refused, match="cannot be replayed"):
        letters.replay(ReplayRequest(who="p"))


def test_a_letter_that_is_not_the_whole_record_stays_open_and_says_so(
    letters: LetterAccess, world: World
) -> None:
    world.create(rejects=TOLERANT)
    world.produce(b'{"k": 1}', b'{"k": 2}')
    loaded(world)
    long = world.box.letters[0]
    world.box.letters[0] = long._replace(headers={**long.headers, "value_bytes": b"9999999"})
    config = read_config(world.jobs.get("j"))
    by_key = (LoaderColumn("v", source="key", type="bigint"),)
    changed = msgspec.structs.replace(config.loader, columns=by_key)
    world.jobs.reconfigure("j", write_config(msgspec.structs.replace(config, loader=changed)))
    done = letters.replay(ReplayRequest(who="p"))
    assert (done.loaded, done.refused) == (0, 2)
    notes = {each.offset: each.note for each in letters.list(9).letters}
    assert notes[0].startswith("refused again: too_large")
    assert notes[1].startswith("refused again: not_kept: key")


@pytest.mark.parametrize("in_file", [False, True], ids=["topic", "file"])
def test_a_letter_is_loaded_once_whatever_is_pressed_and_whoever_dies(tmp_path: Path, in_file: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS // 4 if in_file else SEEDS):  # a file has the same steps
        clock = ManualClock(1_000_000)
        path = tmp_path / f"ledger-{seed}.db"
        with open_ledger(path, clock=clock, sleep=lambda _: None) as ledger:
            world = World(ledger, clock)
            world.sink = type(world.sink)(now_ms=clock.now_ms)
            run = LetterRun(ledger, world, seed, tmp_path / f"rejects-{seed}.jsonl" if in_file else None)
            try:
                run.run()
            except BaseException:
                print(f"seed {seed}: {run.counts}")
                raise
            seen += run.counts
    for what in ("replayed", "refused again", "dropped", "went on", "began again"):
        assert seen[what] > 0, seen
    for step in () if in_file else ("begin", "note_sent", "load", "finish"):
        for where in ("before", "after"):
            assert seen[f"killed {where} {step}"] > 0, shown(seen)
            assert seen[f"stood still {where} {step}"] > 0, shown(seen)


@pytest.mark.parametrize("in_file", [False, True], ids=["topic", "file"])
def test_letters_of_a_server_that_forgets_labels_are_listed_and_dropped_and_never_loaded(
    tmp_path: Path, in_file: bool
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS // 5):
        clock = ManualClock(1_000_000)
        path = tmp_path / f"ledger-{seed}.db"
        with open_ledger(path, clock=clock, sleep=lambda _: None) as ledger:
            world = World(ledger, clock)
            world.sink = type(world.sink)(keeps_labels=False, now_ms=clock.now_ms)
            file = tmp_path / f"rejects-{seed}.jsonl" if in_file else None
            run = LetterRun(ledger, world, seed, file, can_replay=False)
            try:
                run.run()
            except BaseException:
                print(f"seed {seed}: {run.counts}")
                raise
            seen += run.counts
    assert seen["dropped"] > 0, seen
    assert seen["replay: Refused"] > 0, seen
    assert seen["replayed"] == 0, seen

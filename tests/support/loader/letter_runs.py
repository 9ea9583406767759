"""Seeded runs of dead letters: loads, replays, drops and resets in drawn orders, and deaths between.

The table is compared with a recount. Each record has a key of its own; some are refused while column `v`
takes no null, some always. A process can be killed before and after each of its writes and requests, and it
can stand still there while another replays: then it goes on without its turn, and its request comes late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rtolap.base.errors import NotLeader, NotYet, Refused, RtolapError, Unavailable
from rtolap.kafka.interfaces import LogRange
from rtolap.model.loader import LoaderRejects
from rtolap.protocols.loader.letters import DropRequest, LetterSelection, ReplayRequest
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.job import JobConfig, read_config, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.letters.access import LetterAccess, LetterPlace
from rtolap.stored.loader.records.rejects import FileBox, letters_in_file
from rtolap.stored.loader.reset import going_on_as_defined, settle_batch
from rtolap.stored.loader.states import Stopped
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letter_sets import LetterState
from rtolap.stored.metastore.dead_letters import DeadLetters
from rtolap.stored.metastore.load_jobs import LoadJobEvent

from tests.support.loader.stepped_loader import World, load_all

STEPS = 30
_STRICT = TableSchema(
    properties=(SchemaColumn("k", "BIGINT", is_nullable="No"), SchemaColumn("v", "BIGINT", is_nullable="No"))
)
_MILD = TableSchema(properties=(SchemaColumn("k", "BIGINT", is_nullable="No"), SchemaColumn("v", "BIGINT")))
_FAULTS = (Unavailable, NotLeader, NotYet, Refused)
_WRITES = ("own", "renew", "begin", "note_sent", "finish", "reopen", "refused_again", "acknowledged", "drop")
_STEPS = ("begin", "note_sent", "load", "finish")  # of each load; the others are rarer
_REQUESTS = ("load", "close_label", "acknowledge")


class Killed(BaseException):
    """The process is gone. Nothing of it runs any more, no `finally` either: see `_Mortal`."""


class Process:
    """A process that is `dead` or not. `fault_at`: where it dies or stands still."""

    def __init__(self, fault_at: str = "") -> None:
        self.dead, self.fault_at = False, fault_at


class _Mortal:
    """A process's view of a part: it can die, or stand still, before and after each named call."""

    def __init__(self, run: LetterRun, of: Any, named: tuple[str, ...], process: Process) -> None:
        self._run, self._of, self._named, self._process = run, of, named, process

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._of, name)
        if not callable(call):
            return call

        def called(*arguments: Any, **options: Any) -> Any:
            if self._process.dead:
                raise Killed
            if name not in self._named:
                return call(*arguments, **options)
            self._run.between(self._process, f"before {name}")
            answer = call(*arguments, **options)
            self._run.between(self._process, f"after {name}")
            if name == "load" and self._run.loses_answer():
                raise Unavailable("the answer is lost")
            return answer

        return called


class LetterRun:
    def __init__(
        self, ledger: Ledger, world: World, seed: int, file: Path | None = None, *, can_replay: bool = True
    ) -> None:
        """`file`: where letters are kept; None: in a topic. `can_replay`: whether the sink is one that keeps
        labels."""
        self._file, self._can_replay = file, can_replay
        if file is not None:
            world.box = FileBox(file)
        self.random = random.Random(seed)
        self.world, self.letters = world, DeadLetters(ledger)
        self.counts: Counter[str] = Counter()
        self._faulty = True
        self._depth = 0
        self._keys: dict[tuple[int, int], int] = {}
        self._valid: set[int] = set()
        self._whole_since = 1  # the incarnation that began with an empty table
        world.sink.tables["d", "t"] = _STRICT
        world.create(rejects=LoaderRejects(tolerance_percent=100, to="topic" if file is None else "file"))

    # --- faults ---------------------------------------------------------------------------------------

    def between(self, process: Process, where: str) -> None:
        """Let a process die here, or stand still while another one replays."""
        if where != process.fault_at:
            return
        process.fault_at = ""
        if self._depth > 1 or self.random.random() < 0.5:
            self.counts[f"killed {where}"] += 1
            process.dead = True
            raise Killed
        self.counts[f"stood still {where}"] += 1
        self.world.clock.advance_ms(61_000)
        self.replay()

    def loses_answer(self) -> bool:
        return self._faulty and self.random.random() < 0.15

    def _process(self, *steps: str) -> Process:
        if not self._faulty or self.random.random() < 0.3:
            return Process()
        return Process(f"{self.random.choice(('before', 'after'))} {self.random.choice(steps)}")

    # --- what happens ---------------------------------------------------------------------------------

    def run(self) -> None:
        acts: list[tuple[float, Callable[[], None]]] = [
            (3, self.produce),
            (3, self.load),
            (2, self.replay),
            (6, self.mend_and_replay),
            (1, self.drop),
            (1, self.change_table),
            (0.3, self.reset),
            (1, lambda: self.world.clock.advance_ms(self.random.choice((1_000, 61_000, 800_000)))),
        ]
        for _ in range(STEPS):
            (act,) = self.random.choices([act for _, act in acts], [weight for weight, _ in acts])
            act()
            self.check()
        self.end()

    def produce(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            partition, key = self.random.randrange(2), len(self._keys)
            kind = self.random.choice(("good", "no v", "no v", "broken"))
            text = {"good": b'{"k": %d, "v": 1}', "no v": b'{"k": %d}', "broken": b'{"k": "x%d"}'}[kind]
            log = self.world.broker.logs("t")[partition]
            self._keys[partition, log.end] = key
            if kind != "broken":
                self._valid.add(key)
            self.world.produce(text % key, partition=partition)

    def load(self) -> None:
        process = self._process("load")
        sink = self.world.sink
        self.world.sink = _Mortal(self, sink, ("load",), process)
        try:
            work = self.world.start()
            load_all(work, rounds=self.random.randrange(1, 8))
            self.world.clock.advance_ms(self.random.choice((0, 10_000)))
            load_all(work, rounds=self.random.randrange(1, 4))
            self.counts["loaded"] += 1
        except (Killed, *_FAULTS):
            self.counts["loading broke off"] += 1
            self.tear()
        except Stopped:
            self._start_again()
        finally:
            self.world.sink = sink

    def _start_again(self) -> None:
        """Settle what stopped the loader, as a person does who has looked into the table, and start it."""
        if not self._can_replay:
            there = {each.label for each in self.world.sink.committed}
            self.world.clock.advance_ms(61_000)
            for record in self.world.records.all("j"):
                if record.attempts and not record.loaded:
                    loaded = record.label in there
                    leases, records = self.world.jobs.leases, self.world.records
                    settle_batch(leases, records, "j", record.sequence_id, loaded=loaded, letters_of="j")
                    self.counts["settled"] += 1
        self.world.jobs.change_state("j", LoadJobEvent.START, "")

    def replay(self) -> None:
        self._depth += 1
        if self.random.random() < 0.6:
            self.world.clock.advance_ms(61_000)  # whoever died before has had its turn
        process = self._process(*(4 * _STEPS), *_WRITES, *_REQUESTS)
        try:
            done = self.access(process).replay(ReplayRequest(who="p", selection=self._selection()))
            self.counts["replayed"] += done.loaded
            self.counts["refused again"] += done.refused
        except (Killed, *_FAULTS) as error:
            self.counts[f"replay: {type(error).__name__}"] += 1
        finally:
            self._depth -= 1

    def mend_and_replay(self) -> None:
        self.world.sink.tables["d", "t"] = _MILD
        self.replay()
        if self.random.random() < 0.8:
            self.world.sink.tables["d", "t"] = _STRICT

    def drop(self) -> None:
        if self.random.random() < 0.4:
            return
        try:
            request = DropRequest(who="p", why="w", selection=self._selection())
            self.counts["dropped"] += self.access(Process()).drop(request).dropped
        except (Killed, *_FAULTS):
            self.counts["drop broke off"] += 1

    def change_table(self) -> None:
        self.world.sink.tables["d", "t"] = self.random.choice((_STRICT, _MILD))

    def tear(self) -> None:
        """Leave half a letter in the file, as a process does that dies while it writes."""
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(b'{"topic": "t", "partition": "0", "offset": "0", "reason": "half of')

    def reset(self) -> None:
        """Go on behind what is loaded; or begin again, with the table made empty."""
        self.world.clock.advance_ms(61_000)
        jobs, log = self.world.jobs, {}
        for number, each in enumerate(self.world.broker.logs("t")):
            log[number] = LogRange(each.start, each.end)
        config = read_config(jobs.get("j"))
        goes_on = self.random.random() < 0.6

        def begins_at(series: Any) -> Any:
            return going_on_as_defined(config, series, log) if goes_on else None

        try:
            after = jobs.define_again(
                "j",
                lambda series: write_config(JobConfig(config.loader, begins_at(series))),
                begins_at=begins_at,
            )
        except Refused:
            self.counts["reset refused"] += 1
            return
        jobs.change_state("j", LoadJobEvent.START, "")
        self.counts["went on" if goes_on else "began again"] += 1
        if not goes_on:
            self.world.sink.committed.clear()
            self._whole_since = after.incarnation

    def access(self, process: Process) -> LetterAccess:
        letters: Any = _Mortal(self, self.letters, _WRITES, process)
        sink: Any = _Mortal(self, self.world.sink, _REQUESTS, process)
        return LetterAccess(
            "j",
            self.world.jobs,
            letters,
            lambda: frozenset(each.label for each in self.world.records.all("j") if not each.loaded),
            lambda _: self._place(),
            lambda _: sink,
            self.world.clock,
        )

    def _place(self) -> LetterPlace:
        if self._file is not None:
            return LetterPlace(partial(letters_in_file, self._file), file=self._file)
        return LetterPlace(lambda newest: list(self.world.box.letters), topic="t.j.rejects")

    def _selection(self) -> LetterSelection:
        drawn = self.random.random()
        if drawn < 0.5 or not self._keys:
            return LetterSelection()
        if drawn < 0.7:
            return LetterSelection(reason=self.random.choice(("missing_value", "wrong_type")))
        places = self.random.choices(sorted(self._keys), k=2)
        return LetterSelection(places=tuple(f"{partition}/{offset}" for partition, offset in places))

    # --- what must hold -------------------------------------------------------------------------------

    def table(self) -> Counter[int]:
        return Counter(row["k"] for row in self.world.sink.rows("d", "t"))

    def check(self) -> None:
        """Check that each record is there at most once, and what the ledger says of it."""
        table = self.table()
        assert not {key: number for key, number in table.items() if number > 1}, "a record is there twice"
        for kept in self.letters.sets("j"):
            if int(kept.label.split("_")[1]) < self._whole_since:
                continue
            keys = {self._keys[place] for place in kept.places}
            there = {key for key in keys if table[key]}
            if kept.state is LetterState.OPEN:
                assert not there, f"open, and in the table: {there}"
            if kept.state is LetterState.REPLAYED:
                assert there == keys, f"replayed, and not in the table: {keys - there}"

    def end(self) -> None:
        """Let everything settle, and compare the table with what was produced."""
        self._faulty = False
        self.world.sink.tables["d", "t"] = _MILD
        self.world.clock.advance_ms(900_000)
        work = self._settled()
        ends = {number: log.end for number, log in enumerate(self.world.broker.logs("t"))}
        assert work.last_record().end_offsets == ends
        done = None
        while self._can_replay and (done is None or done.loaded):
            done = self._quietly(lambda: self.access(Process()).replay(ReplayRequest(who="p")))
        self.check()
        states: dict[int, set[str]] = {}
        for kept in self.letters.sets("j"):
            if int(kept.label.split("_")[1]) >= self._whole_since:
                for place in kept.places:
                    states.setdefault(self._keys[place], set()).add(kept.state)
        given_up = {
            key for key, each in states.items() if each & {LetterState.DROPPED, LetterState.UNCERTAIN}
        }
        left = {key for key, each in states.items() if LetterState.OPEN in each}
        if not self._can_replay:
            self._check_listed(states)
            given_up |= left
        table = set(self.table())
        assert table - given_up == self._valid - given_up
        self.counts["uncertain"] += sum(LetterState.UNCERTAIN in each for each in states.values())

    def _check_listed(self, states: dict[int, set[str]]) -> None:
        """Check that the list says of each letter of the last incarnation what the ledger does, once."""
        listed: dict[int, set[str]] = {}
        for letter in self.access(Process()).list(10_000).letters:
            known = letter.state in set(LetterState)
            if known and int(letter.batch.split("_")[1]) >= self._whole_since:
                listed.setdefault(self._keys[letter.partition, letter.offset], set()).add(letter.state)
        assert listed == states

    def _settled(self) -> LoadJobRun:
        while True:
            try:
                work = self.world.start()
                for _ in range(20):  # what is left of a batch waits for its time
                    load_all(work)
                    self.world.clock.advance_ms(10_000)
                return work
            except Stopped:
                self._start_again()
            except (Unavailable, NotYet):
                self.counts["waited"] += 1

    def _quietly(self, call: Callable[[], Any]) -> Any:
        for _ in range(20):
            try:
                return call()
            except RtolapError:
                self.counts["waited"] += 1
        return call()


def shown(counts: Counter[str]) -> str:
    return msgspec.json.encode(dict(sorted(counts.items()))).decode()

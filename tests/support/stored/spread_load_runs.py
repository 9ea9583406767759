"""Seeded runs of loads at every door: two front ends and a storage node's process, over a ledger and nodes.

    python -m tests.support.stored.spread_load_runs --seed N

What is drawn: the door and the label of each load, so that labels meet at two doors; loads that stand still
between their beginning and their rows; deaths of doors and of the master, elections; requests to the master
that are lost, unanswered or doubled; rows of a node that are lost; crashes at commits. In the end a plain
recount says that each label is there whole and once, or not at all, as its answers and its state say.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import httpx
import msgspec
from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.model.stored.table import Buckets, StoredColumn, StoredTable
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.bodies.options import load_options
from rtolap.stored.frontend.election import LEASE_MS
from rtolap.stored.stream_load.request import TIMEOUT_S_DEFAULT, LoadRequest

from tests.support.seeds import replay
from tests.support.stored.stored_in_process import Gate, InProcessCluster, InProcessDoor
from tests.support.stored.transaction_runs import FaultyLedger
from tests.support.twins.clock import ManualClock

STEPS = 40
LABELS = 8
ROWS_MAX = 5
_FAULTY = 0.08
_FRONT_ENDS = 2
_REAL_S_MAX = 60.0  # for a thread that has nothing to wait for
_HEADERS = {"column_separator": ","}
HITS = StoredTable(
    database="web",
    name="hits",
    columns=(StoredColumn("id", "int", nullable=False), StoredColumn("label", "string")),
    keys=("id",),
    buckets=Buckets(count=2),
)


class _Held(NamedTuple):
    """A load that stands still at the gate."""

    label: str
    gate: Gate
    answer: Future[LoadAnswer | None]


class SpreadRun(Closeable):
    """`close` it. `answers`: those of each label, in their order."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.counts = Counter[str]()
        self.faults_on = False
        self.clock = ManualClock(1_000_000)
        self.ledger = FaultyLedger.open("sqlite://", clock=self.clock, sleep=lambda _: None)
        self.cluster = InProcessCluster(self.ledger, self.clock, self.chance)
        self.cluster.create_table(HITS)
        self.door = InProcessDoor(self.cluster, self.cluster.folder / "door")
        self.rows = {
            f"l{number}": [number * ROWS_MAX + row for row in range(self.random.randint(1, ROWS_MAX))]
            for number in range(LABELS)
        }
        self.answers: dict[str, list[LoadAnswer]] = defaultdict(list)
        self.held: list[_Held] = []
        self.pool = ThreadPoolExecutor(32)

    def close(self) -> None:
        for held in self.held:
            held.gate.released.set()
        self.pool.shutdown()
        self.door.close()
        self.cluster.close()
        self.ledger.close()

    def chance(self, *kinds: str, often: float = 1.0) -> str | None:
        if self.faults_on and self.random.random() < _FAULTY * often:
            kind = self.random.choice(kinds)
            self.counts[kind] += 1
            return kind
        return None

    def run(self, steps: int) -> None:
        acts = (
            (self.load, 10),
            (self.hold, 5),
            (self.release, 5),
            (self.kill_or_start_front_end, 3),
            (self.kill_door, 1),
            (self.change_master, 2),
            (self.pass_time, 2),
            (self.cluster.run_once, 2),
        )
        weights = [weight for _, weight in acts]
        for _ in range(steps):
            ((act, _),) = self.random.choices(acts, weights)
            self.faults_on = True
            try:
                act()
            except Unavailable:
                self.counts["in vain"] += 1
            finally:
                self.faults_on = False
        self.check()

    # --- steps

    def load(self) -> None:
        label, door = self.random.choice(sorted(self.rows)), self.random.randrange(_FRONT_ENDS + 1)
        self._note(label, self._loaded(label, door))

    def hold(self) -> None:
        """Begin a load, which stands still before its rows go to nodes."""
        label, door = self.random.choice(sorted(self.rows)), self.random.randrange(_FRONT_ENDS + 1)
        gate = self.cluster.gate = Gate()
        answer = self.pool.submit(self._loaded, label, door)
        while not gate.reached.wait(0.002):
            if answer.done():  # it came to an end before
                self.cluster.gate = None
                self._note(label, answer.result())
                return
        self.held.append(_Held(label, gate, answer))
        self.counts["held"] += 1

    def release(self) -> None:
        if not self.held:
            return
        held = self.held.pop(self.random.randrange(len(self.held)))
        held.gate.released.set()
        self._note(held.label, held.answer.result(_REAL_S_MAX))

    def kill_or_start_front_end(self) -> None:
        ends = self.cluster.endpoints
        down = [number for number, end in enumerate(ends) if end is None or end.ledger.dead]
        if down:
            self.cluster.start_endpoint(self.random.choice(down))
            return
        number = self.random.randrange(_FRONT_ENDS)
        end = ends[number]
        master = end is not None and end.assembly.election.leading
        self.counts["master killed" if master else "follower killed"] += 1
        self.cluster.kill_endpoint(number)

    def kill_door(self) -> None:
        self.door.close()
        self.door = InProcessDoor(self.cluster, self.cluster.folder / "door")
        self.counts["node's process killed"] += 1

    def change_master(self) -> None:
        """Elect the other one; the one before goes on in the belief that it is master."""
        others = [end for end in self.cluster.living() if end is not self.cluster.master()]
        self.clock.advance_ms(LEASE_MS + 1)
        self.cluster.beat()
        for end in others[:1]:
            self.counts["other master"] += end.assembly.election.run_once()

    def pass_time(self) -> None:
        self.clock.advance_ms(self.random.randrange(1, 2 * LEASE_MS))
        self.cluster.beat()

    # --- the recount

    def check(self) -> None:
        while self.held:
            self.release()
        self._settle()
        loaded = self._loaded_labels()
        for label, answers in self.answers.items():
            success = [answer for answer in answers if answer.status in ("Success", "Publish Timeout")]
            finished = any(answer.existing_job_status == "FINISHED" for answer in answers)
            assert len(success) <= 1, f"seed {self.seed}: {label} was taken {len(success)} times"
            if success or finished:
                assert label in loaded, f"seed {self.seed}: {label} was answered as loaded, and is not there"
        for label in sorted(self.rows):
            again = self._loaded(label, self.random.randrange(_FRONT_ENDS + 1))
            assert again is not None
            wanted = "Label Already Exists" if label in loaded else "Success"
            assert again.status in (wanted, "Publish Timeout"), f"seed {self.seed}: {label}: {again}"
        self._settle()
        assert self._loaded_labels() == set(self.rows), f"seed {self.seed}: labels are missing"

    def _settle(self) -> None:
        """Let the deadlines of all loads pass, with everybody up."""
        self.cluster.heal()
        self.clock.advance_ms((TIMEOUT_S_DEFAULT + 1) * 1000)
        self.cluster.heal()
        self.cluster.check_settled()

    def _loaded_labels(self) -> set[str]:
        """Return the labels whose rows are there, each of them once and whole, as its state says."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.cluster.rows("web", "hits"):
            found[row["label"]].append(row["id"])
        for label, ids in found.items():
            wanted = self.rows[label]
            assert sorted(ids) == wanted, f"seed {self.seed}: {label} has {sorted(ids)}, not {wanted}"
        states = self.cluster.labels("web")
        visible = {label for label, state in states.items() if state == "VISIBLE"}
        assert set(states.values()) <= {"VISIBLE", "ABORTED"}, f"seed {self.seed}: {states}"
        assert visible == set(found), f"seed {self.seed}: {visible} are visible, {set(found)} are there"
        return visible

    def _loaded(self, label: str, door: int) -> LoadAnswer | None:
        """Return the answer of a load at one door; None where the door died."""
        body = "".join(f"{row},{label}\n" for row in self.rows[label]).encode()
        try:
            if door == _FRONT_ENDS:
                options = load_options(_HEADERS)
                request = LoadRequest(db="web", table="hits", label=label, options=options)
                return self.door.load(request, body)
            headers = {**_HEADERS, "label": label}
            response = self.cluster.put(door, "/api/web/hits/_stream_load", headers, body)
        except (httpx.TransportError, RtolapError):
            self.counts["no answer"] += 1
            return None
        if response.status_code != 200:
            self.counts["no answer"] += 1
            return None
        return decode_json(response.content, LoadAnswer)

    def _note(self, label: str, answer: LoadAnswer | None) -> None:
        if answer is not None:
            self.answers[label].append(answer)
            self.counts[answer.status] += 1
            if answer.code is not msgspec.UNSET:
                self.counts[f"failed by {answer.code}"] += 1


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    with SpreadRun(seed) as run:
        run.run(steps)
        return run.counts


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)

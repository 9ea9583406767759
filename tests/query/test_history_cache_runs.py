"""Seeded runs of the history cache: whatever happens, what is read is what the store has, and never too much
is on the disk; once nothing fails any more, the copies are those that a slow model chooses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Corrupted, Unavailable
from rtolap.metadata.records import SegmentRecord
from rtolap.query.history_cache.states import FileState

from tests.support.query.cache_world import HOUR_MS, CacheWorld, Crash
from tests.support.seeds import so_many

STEPS = 120
RUNS = 12
HOURS = 24
_KINDS = (
    *("publish",) * 6,
    *("read",) * 6,
    *("round",) * 8,
    *("purge", "horizon", "drop cube", "crash", "crash", "full disk", "failing disk", "store away"),
    *("damage", "damage", "bad upload", "long read", "mend", "mend", "budget"),
)


class Run:
    """One life of a cache among `STEPS` random events. `happened` counts what was met."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.world = CacheWorld(folder, seed, bytes_max=12_000)
        self.rng = self.world.rng
        self.happened: Counter[str] = Counter()
        self.bad: dict[str, bytes] = {}  # path → what the store should hold there

    def run(self) -> Counter[str]:
        for _ in range(STEPS):
            kind = self.rng.choice(_KINDS)
            try:
                self.step(kind)
            except Crash:
                self.happened["killed"] += 1
                self.restart()
        self.mend()
        self.look_at_all_copies()
        self.world.settle()
        assert self.world.cached() == self.world.expected()
        for record in self.world.ready():
            self.read(record)
        self.happened["evicted"] = sum(self.world.cache.evicted.values())
        self.world.kill()
        return self.happened

    def step(self, kind: str) -> None:
        world, rng = self.world, self.rng
        match kind:
            case "publish":
                sizes = [
                    [rng.randint(1, 1_800) for _ in range(rng.randint(1, 2))]
                    for _ in range(rng.randint(1, 3))
                ]
                world.publish(rng.choice(list(world.records)), rng.randrange(HOURS), sizes)
            case "read":
                if ready := world.ready():
                    self.read(rng.choice(ready))
            case "long read":
                if ready := world.ready():
                    self.read(rng.choice(ready), during=True)
            case "round":
                for _ in range(rng.randint(1, 6)):
                    world.clock.advance_ms(rng.choice((0, 300, 1_000, 40_000)))
                    world.keeper.round()
                    world.disk.check()
            case "purge":
                if ready := world.ready():
                    world.purge(rng.choice(ready))
            case "horizon":
                cube = rng.choice(list(world.records))
                horizon_ms = max(world.controls[cube].horizon_ms or 0, rng.randrange(HOURS // 2) * HOUR_MS)
                world.controls[cube] = msgspec.structs.replace(world.controls[cube], horizon_ms=horizon_ms)
            case "drop cube":
                world.records[rng.choice(list(world.records))] = {}
            case "crash":
                world.disk.die_at = world.disk.operations + rng.randint(1, 25)
            case "full disk":
                world.disk.room = rng.randint(0, 2_000)
            case "failing disk":
                world.disk.failing = True
            case "store away":
                world.remote.down = True
            case "damage":
                self.damage()
            case "bad upload":
                if ready := world.ready():
                    self.spoil(rng.choice(ready))
            case "budget":
                if rng.random() < 0.2:
                    world.bytes_max = rng.randint(3_000, 15_000)
                    self.restart()
            case _:
                self.mend()
        self.happened[kind] += 1

    def restart(self) -> None:
        world = self.world
        world.kill()
        world.disk.room, world.disk.failing = None, False
        world.begin()
        world.keeper.round()
        world.watch()

    def read(self, record: SegmentRecord, *, during: bool = False) -> None:
        """What is read is right, or it fails as it would without a cache."""
        world, location = self.world, record.location
        assert location is not None
        cuboid = self.rng.randrange(len(world.manifests[location].cuboids))
        operations = world.disk.operations

        def others_go_on() -> None:
            if during:
                world.publish(record.cube, self.rng.randrange(HOURS), [[1_500, 1_500]])
                world.clock.advance_ms(2_000)
                for _ in range(8):
                    world.keeper.round()
                    world.disk.check()

        try:
            found, stats = world.read_files(record, cuboid, others_go_on)
        except Unavailable:
            assert world.remote.down
            self.happened["unavailable"] += 1
            return
        except Corrupted:
            assert any(path.startswith(location) for path in self.bad)
            self.happened["bad answer refused"] += 1
            return
        names = [f"{location}/{file.name}" for file in world.manifests[location].cuboids[cuboid].files]
        assert found == [world.contents[name] for name in names]
        assert stats.files_cached + stats.files_remote == len(names)
        assert during or world.disk.operations == operations, "reading changes nothing on the disk"
        self.happened["from the cache"] += stats.files_cached
        self.happened["from the store"] += stats.files_remote

    def damage(self) -> None:
        """One copy loses its end, gets a bit changed, or goes."""
        names = sorted(name for name in self.world.cached() if not name.endswith(".rtolap-tmp"))
        if not names:
            return
        copy = self.world.root / "files" / self.rng.choice(names)
        data = copy.read_bytes()
        match self.rng.randrange(3):
            case 0:
                copy.write_bytes(data[: len(data) // 2])
            case 1:
                copy.write_bytes(data[:-1] + bytes([data[-1] ^ 4]))
            case _:
                copy.unlink()

    def look_at_all_copies(self) -> None:
        """Damage that nobody has come by yet is found."""
        for path in [file.path for file in self.world.cache.files(FileState.CACHED)]:
            with self.world.cache.leases([path]):
                pass

    def spoil(self, record: SegmentRecord) -> None:
        """A file of the store is not what its manifest says, until it is mended."""
        world, location = self.world, record.location
        assert location is not None
        file = self.rng.choice(world.manifests[location].cuboids[0].files)
        path = f"{location}/{file.name}"
        self.bad.setdefault(path, world.contents[path])
        length = self.rng.choice((file.bytes, file.bytes // 2, file.bytes + 5_000))
        world.plain.write(path, self.rng.randbytes(length))

    def mend(self) -> None:
        world = self.world
        world.disk.room, world.disk.failing, world.disk.die_at = None, False, None
        world.remote.down = False
        for path, data in self.bad.items():
            if world.plain.exists(path):
                world.plain.write(path, data)
        self.bad = {}


_MET: Counter[str] = Counter()


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(RUNS)))
def test_answers_equal_the_stores_and_the_budget_holds(tmp_path: Path, seed: int) -> None:
    _MET.update(Run(tmp_path, seed).run())


@pytest.mark.seeded
def test_the_runs_met_everything() -> None:
    wanted = {*_KINDS, "killed", "from the cache", "from the store", "unavailable", "bad answer refused"}
    if not _MET:
        pytest.skip("the runs are not in this process")
    assert {kind for kind in wanted if not _MET[kind]} == set()
    assert _MET["evicted"] > RUNS

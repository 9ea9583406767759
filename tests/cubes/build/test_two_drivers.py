"""Two drivers write one version, or one set, with every step of one between two steps of the other."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import NotFound
from rtolap.columnar.schema import history_schema
from rtolap.cubes.build import build, merge
from rtolap.cubes.format import build_batch, history
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN
from rtolap.cubes.format.build_inputs import verify_inputs
from rtolap.cubes.format.file_states import look_here
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest, MergedManifest, decode
from rtolap.cubes.format.tries import scratch_of
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cuboid, cuboids
from rtolap.model.merging.specs import MergeMember, MergeSpec
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import ObjectStore, open_store

from tests.cubes.format.test_build_rows import numbered
from tests.support.cubes.built import assert_merged, assert_recount
from tests.support.cubes.staging import CUBE, SCHEMA, SEGMENT, TABLE, Staging, raw_events, roll_up

SEED = 20130106
EVENTS = 12
ALL = cuboids(CUBE)
STEPS = ("write", "move", "delete", "delete_tree", "exists")
KILLED_EVERY, KILLED_AFTER = 3, 4  # steps: of the first driver, and of the second one before it is killed
RECOUNTED_EVERY = 5


class KilledError(BaseException):
    """A driver is killed, and does nothing any more."""


class Drivers:
    """A driver, and another one that runs wholly before a given step of the first.

    Whatever a manifest has named is looked for after each step: statements may read it from then on.
    """

    def __init__(self, staging: Staging, location: str, *, is_set: bool) -> None:
        self.staging, self.location, self._is_set = staging, location, is_set
        self.named: set[str] = set()
        self.manifests = 0
        self._steps = 0
        self._at: int | None = None
        self._other: Callable[[], object] = lambda: None
        self._left: int | None = None  # steps of the other one before it is killed
        self._lock = threading.RLock()

    def run(self, driver: Callable[[], object], at: int, killed_after: int | None) -> bool:
        """Run the driver, with another one before the step `at`. Return False if there is no such step."""
        self._steps, self._at, self._left = 0, at, None

        def other() -> None:
            self._left = killed_after
            try:
                driver()
            except KilledError:
                pass
            finally:
                self._left = None

        self._other = other
        driver()
        return self._at is None

    def before(self) -> None:
        with self._lock:
            if self._at is not None and self._steps == self._at:
                self._at = None
                is_second = True
            else:
                is_second = False
                if self._at is not None:
                    self._steps += 1
                elif self._left is not None:
                    if self._left == 0:
                        raise KilledError
                    self._left -= 1
        if is_second:
            self._other()

    def _cuboids(self, data: bytes, path: str) -> tuple[CuboidEntry, ...]:
        if self._is_set:
            return decode(data, MergedManifest, path).cuboids
        return decode(data, HistoryManifest, path).cuboids

    def after(self, path: str, look: Callable[[str], bytes], is_there: Callable[[str], bool]) -> None:
        manifest = history.manifest_path(self.location)
        if path == manifest and is_there(manifest):
            self.manifests += 1
            cuboids_there = self._cuboids(look(manifest), manifest)
            self.named |= {file.name for entry in cuboids_there for file in entry.files}
        for name in self.named:
            assert is_there(f"{self.location}/{name}"), f"{name} is deleted, which a manifest names"


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    uri = (tmp_path / "store").as_uri()
    store = open_store(uri)
    store.claim()
    return Staging(store, uri, tmp_path / "store")


@pytest.fixture(params=["in_memory", "in_files"])
def raws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[int, pa.Table]:
    """The raw rows of what is written, as Spark would group them: by the number of their events."""
    raws: dict[int, pa.Table] = {}

    @functools.cache
    def rolled(number: int, dimensions: tuple[str, ...]) -> pa.Table:
        return roll_up(raws[number], dimensions)

    def of_cuboid(rows: pa.Table, cuboid: Cuboid) -> pa.Table:
        return rolled(pa.compute.sum(rows["__rows"]).as_py(), cuboid.dimensions)

    def group(spark: object, schema: object, of_cube: object, rows: pa.Table) -> pa.Table:
        return pa.concat_tables(
            [
                numbered(numbered(of_cuboid(rows, each), SEGMENT_COLUMN, 0), CUBOID_COLUMN, at)
                for at, each in enumerate(ALL)
            ],
            promote_options="default",
        )

    class Writer:
        """Writes below the scratch folder, as tasks of Spark do: past the store."""

        def __init__(self, spark: object, store: ObjectStore, tried: str, specs: Sequence[BuildSpec]) -> None:
            self._store = store
            self._folder = scratch_of(tried, specs[0].location)
            self.cuboids = ALL
            self.folders = [f"{self._folder}/job-0/__cuboid={at}" for at in range(len(ALL))]

        def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
            rows = build_batch.read_rows(self._store, SCHEMA, inputs)
            for cuboid, folder in zip(ALL, self.folders, strict=True):
                target = Path(self._store.absolute(f"{folder}/{SEGMENT_COLUMN}=0/part-0.parquet"))
                target.parent.mkdir(parents=True, exist_ok=True)
                expected = history_schema(SCHEMA, cuboid.dimensions)
                written = of_cuboid(rows, cuboid).select(expected.names).cast(expected)
                pq.write_table(written, target)

    monkeypatch.setattr(build, "tell", lambda spark: None)  # there is no JVM
    monkeypatch.setattr(build, "reported_stages", lambda spark, spec: nullcontext())
    monkeypatch.setattr(build, "is_small", lambda *of: request.param == "in_memory")
    monkeypatch.setattr(build, "group_rows", group)
    monkeypatch.setattr(build, "executors_run_python", lambda spark: True)
    monkeypatch.setattr(build, "PieceWriter", Writer)
    for module in (build, merge):
        monkeypatch.setattr(module, "FilesOfBuild", lambda spark, size: look_here)
    for module in (build, build_batch, history):
        if hasattr(module, "_WORKERS"):
            monkeypatch.setattr(module, "_WORKERS", 1)  # a step after the other
    return raws


def watched(drivers: Drivers, patched: pytest.MonkeyPatch) -> None:
    real = {name: getattr(ObjectStore, name) for name in STEPS}

    def step(name: str) -> Callable[..., Any]:
        def stepped(store: ObjectStore, path: str = "", *more: Any) -> Any:
            drivers.before()
            done = real[name](store, path, *more)
            drivers.after(
                path,
                store.read,
                lambda each: bool(real["exists"](store, each)),
            )
            return done

        return stepped

    for name in STEPS:
        patched.setattr(ObjectStore, name, step(name))


def build_spec(staging: Staging, raws: dict[int, pa.Table], build_id: str, events: int = EVENTS) -> BuildSpec:
    raw = raws[events] = raw_events(SEED, 0, 0, events)
    part = staging.of(SEGMENT).part(1, f"rs-{build_id}", raw, PartRange(0, 0, events))
    return staging.of(SEGMENT).spec(build_id, part, covered={0: events}, first_offsets={0: 0})


def built(spec: BuildSpec) -> None:
    found = build._declared(spec)  # as `attempt`, which reports what is raised
    if not isinstance(found, HistoryManifest):
        assert not isinstance(found, Exception), found
        store = open_store(spec.object_store)
        list(build.build(None, [build.Verified(spec, verify_inputs(store, spec))]))  # type: ignore[arg-type]


def merge_spec(staging: Staging, raws: dict[int, pa.Table], number: int) -> MergeSpec:
    member = build_spec(staging, raws, "member")
    if not staging.store.exists(history.manifest_path(member.location)):
        built(member)
    return MergeSpec(
        merge=f"{number:032x}",
        cube=CUBE.name,
        level="month",
        start_ms=member.start_ms,
        end_ms=member.end_ms,
        members=(MergeMember(member.segment, 1, member.location, EVENTS),),
        table_definition=TABLE,
        cube_definition=CUBE,
        object_store=staging.uri,
        folder=f"merged/{CUBE.name}/month/{number:032x}",
    )


def interleavings() -> Iterator[tuple[int, int | None]]:
    for at in itertools.count():
        yield at, None
        if at % KILLED_EVERY == 0:
            yield at, KILLED_AFTER


def named_files(staging: Staging, location: str) -> set[str]:
    return {each.path.removeprefix(f"{location}/") for each in staging.store.list(location)}


def recount(staging: Staging, spec: BuildSpec | MergeSpec, raw: pa.Table) -> None:
    if isinstance(spec, BuildSpec):
        assert_recount(staging.of(SEGMENT), spec, raw, with_ids=False)
    else:
        assert_merged(staging, spec, raw)


def interleaved(staging: Staging, raws: dict[int, pa.Table], what: str) -> int:
    """Run two drivers in each way, and return how many steps one takes."""
    for number, (at, killed_after) in enumerate(interleavings()):
        spec: BuildSpec | MergeSpec
        if what == "build":
            spec = build_spec(staging, raws, f"b{number}")
        else:
            spec = merge_spec(staging, raws, number)
        drivers = Drivers(staging, spec.location, is_set=what == "merge")

        def driver(spec: BuildSpec | MergeSpec = spec) -> None:
            if isinstance(spec, BuildSpec):
                built(spec)
            else:
                merge.merge(None, spec)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            watched(drivers, patched)
            had_that_step = drivers.run(driver, at, killed_after)
        assert drivers.manifests, f"step {at}, killed after {killed_after}"
        if number % RECOUNTED_EVERY == 0:
            recount(staging, spec, raws[EVENTS])
        if killed_after is None:
            left = named_files(staging, spec.location) - {"manifest.json", "covered.json"}
            assert left == drivers.named, f"step {at}: what no manifest names is left"
        if not had_that_step:
            break
    return at


@pytest.mark.parametrize("what", ["build", "merge"])
def test_a_second_driver_deletes_nothing_that_a_manifest_names(
    staging: Staging, raws: dict[int, pa.Table], what: str
) -> None:
    assert interleaved(staging, raws, what) > len(ALL), "so many files are written, each in a step"


@pytest.mark.parametrize("what", ["build", "merge"])
def test_one_that_begins_with_an_empty_folder_is_noticed(
    staging: Staging, raws: dict[int, pa.Table], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build.write_cuboids

    def emptying(spark: Any, store: ObjectStore, specs: Sequence[BuildSpec], inputs: Any) -> Any:
        for spec in specs:
            store.delete_tree(spec.location)
        return whole(spark, store, specs, inputs)

    for module in (build, merge):
        monkeypatch.setattr(module, "write_cuboids", emptying)
    with pytest.raises((AssertionError, NotFound)):
        interleaved(staging, raws, what)

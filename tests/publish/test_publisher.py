"""A publisher commits READY versions to an Iceberg table: exactly their files, and the same sums."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import AlreadyExists, CommitConflict, NotYet, Refused
from rtolap.columnar.schema import field_ids
from rtolap.metadata.publications import PublicationHolds
from rtolap.model.cube import cuboids
from rtolap.model.publication import PublicationBatch, PublicationSnapshots
from rtolap.publish.verify import verify_publication

from tests.support.cubes.staging import CUBE, SCHEMA, estimate
from tests.support.publish.published import NAME, PublishedCube, day, read_files, totals
from tests.support.seeds import so_many

AT_ONCE = PublicationSnapshots(expire_after_ms=0)
STEPS = (
    "records read",
    "table open",
    "held",
    "verified",
    "committed",
    "expired",
    "held less",
)


class Killed(Exception):
    """Stands for the end of the process: nothing of the publisher runs after it."""


def killed_at(step: str, skipped: int = 0) -> Callable[[str], None]:
    left = skipped

    def reached(present: str) -> None:
        nonlocal left
        if present == step:
            if left == 0:
                raise Killed(step)
            left -= 1

    return reached


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[PublishedCube]:
    made = PublishedCube(tmp_path)
    yield made
    made.close()


def test_a_reader_of_the_table_gets_the_sums_of_the_events(cube: PublishedCube) -> None:
    cube.promote(0)
    cube.promote(1)
    publication = cube.declared()
    look = cube.publisher(publication).look()
    assert (look.committed, look.snapshots) == (1, 1)
    cube.assert_published(publication)


@pytest.mark.parametrize("cuboid", cuboids(CUBE)[1:], ids=lambda cuboid: cuboid.name)
def test_any_cuboid_can_be_published(cube: PublishedCube, cuboid: object) -> None:
    dimensions = getattr(cuboid, "dimensions", ())
    cube.promote(0, 50)
    publication = cube.declared(cuboid=tuple(reversed(dimensions)))
    cube.publisher(publication).look()
    cube.assert_published(publication)
    schema = cube.table(publication).schema()
    ids = field_ids(SCHEMA)
    assert {field.name: field.field_id for field in schema.fields} == {
        name: ids[name] for name in (*dimensions, *(partial.name for partial in SCHEMA.partials))
    }


def test_values_of_every_type_come_through_as_they_are(cube: PublishedCube) -> None:
    cube.promote(0, 60)
    publication = cube.declared()
    cube.publisher(publication).look()
    found = cube.table(publication).scan().to_arrow()
    expected = cube.expected(CUBE.all_dimensions)
    names = expected.column_names

    def rows(table: pa.Table) -> list[str]:
        listed = table.select(names).to_pylist()
        return sorted(repr({**row, "buyer__hll": estimate(row["buyer__hll"])}) for row in listed)

    assert rows(found) == rows(expected)


def test_one_snapshot_holds_a_batch_of_promotions(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    for number in range(5):
        cube.promote(number)
    assert publisher.look().committed == 1
    assert publisher.look().committed == 0, "nothing is new"
    cube.promote(2)
    cube.promote(5)
    look = publisher.look()
    assert (look.committed, look.snapshots) == (1, 2)
    cube.assert_published(publication)
    summary = cube.table(publication).metadata.snapshots[-1].summary
    assert summary is not None
    assert summary["rtolap.versions"] == f"{day(2).name}=v2 {day(5).name}=v1"


def test_a_replaced_version_goes_in_the_snapshot_in_which_its_successor_comes(cube: PublishedCube) -> None:
    publication = cube.declared(batch=PublicationBatch(versions_max=1))
    publisher = cube.publisher(publication)
    for number in range(3):
        cube.promote(number)
    assert publisher.look().committed == 3
    for number in range(3):
        cube.promote(number)
    publisher.look()
    table = cube.table(publication)
    for snapshot in table.metadata.snapshots[2:]:
        versions = [name for name in publisher.table.named_files(snapshot) if name.version is not None]
        segments = {file.version.segment.name: file.version.version for file in versions if file.version}
        assert segments.keys() == {day(number).name for number in range(3)}, "no segment is ever missing"
        by_segment = {(file.version.segment, file.version.version) for file in versions if file.version}
        assert len(by_segment) == 3, "and none is there in two versions"
    cube.assert_published(publication)


def test_a_purged_segment_leaves_the_table(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    cube.promote(1)
    publisher.look()
    cube.purge(0)
    assert publisher.look().committed == 1
    cube.assert_published(publication)


def test_a_version_without_a_row_is_published_and_looked_at_once(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    cube.promote(1, 0)
    assert publisher.look().committed == 1
    assert publisher.look().committed == 0
    cube.promote(1, 0)
    assert publisher.look().committed == 0, "there is nothing to put into a snapshot"
    cube.assert_published(publication)


def test_no_data_file_is_rewritten(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    before = {file: cube.files.sha256(file.path) for file in cube.files.list("history")}
    publisher.look()
    cube.promote(0)
    publisher.look()
    assert {file: cube.files.sha256(file.path) for file in before} == before
    warehouse = [path.suffix for path in (cube.folder / "warehouse").rglob("*") if path.is_file()]
    assert set(warehouse) == {".avro", ".json"}


# -- files of older builds -------------------------------------------------------------------------------


def test_files_with_ids_carry_those_of_the_table_in_every_cuboid(cube: PublishedCube) -> None:
    cube.promote(0)
    ids = field_ids(SCHEMA)
    for file in cube.files.list("history"):
        if file.path.endswith(".parquet"):
            schema = pq.read_schema(cube.files.absolute(file.path))
            found = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
            assert found == {name: ids[name] for name in schema.names}


def test_files_without_ids_are_read_by_name(cube: PublishedCube) -> None:
    cube.promote(0, with_ids=False)
    cube.promote(1)
    publication = cube.declared(cuboid=("shop",))
    cube.publisher(publication).look()
    cube.assert_published(publication)
    assert totals(cube.table(publication).scan(selected_fields=("*",)).to_arrow())["__rows"] == 40


def test_a_file_with_other_columns_is_refused_by_name(cube: PublishedCube) -> None:
    record = cube.promote(0)
    publication = cube.declared()
    first, *_ = cube.expected_files(cuboids(CUBE)[0])
    path = Path(first.removeprefix("file://"))
    rows = pq.read_table(path)
    fields = [field.with_metadata({b"PARQUET:field_id": b"99"}) for field in rows.schema]
    pq.write_table(rows.cast(pa.schema(fields)), path)
    with pytest.raises(Refused, match="has other columns than table"):
        cube.publisher(publication).look()
    assert cube.records.holds(NAME).hold(day(0), record.version), "held before it would be named"


# -- killed anywhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_publisher_that_is_killed_after_any_step_is_caught_up_by_the_next(
    cube: PublishedCube, step: str
) -> None:
    publication = cube.declared(snapshots=AT_ONCE)
    cube.promote(0)
    cube.promote(1)
    cube.publisher(publication).look()
    cube.promote(0)
    cube.promote(2)
    with pytest.raises(Killed):
        cube.publisher(publication, reached=killed_at(step)).look()
    assert_named_is_held(cube)
    successor = cube.publisher(publication)
    successor.look()
    cube.assert_published(publication)
    assert_named_is_held(cube)
    successor.look()  # holds fewer, of which it had to make a snapshot of its own
    assert successor.look().committed == 0, "there is nothing left to do"
    assert set(STEPS) == set(steps_of_a_look(cube)), "each step of a look is tried"


def steps_of_a_look(cube: PublishedCube) -> list[str]:
    seen: list[str] = []
    cube.promote(1)
    cube.publisher(cube.publication(snapshots=AT_ONCE), reached=seen.append).look()
    return seen


def assert_named_is_held(cube: PublishedCube) -> None:
    """Whatever any snapshot names is held: the purge may come at any moment."""
    holds = cube.records.holds(NAME)
    publisher = cube.publisher(cube.publication())
    publisher.table.read()
    for version in publisher.table.named_versions():
        assert holds.hold(version.segment, version.version), version


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_seeded_kills_promotions_and_purges_leave_exactly_the_ready_versions(
    cube: PublishedCube, seed: int
) -> None:
    rng = random.Random(seed)
    publication = cube.declared(snapshots=AT_ONCE, batch=PublicationBatch(versions_max=rng.choice((1, 2, 9))))
    purged: set[int] = set()
    kills = 0
    publisher = cube.publisher(publication)
    for _ in range(14):
        for _ in range(rng.randrange(3)):
            number = rng.randrange(6)
            if number not in purged:
                cube.promote(number, rng.randrange(0, 6), with_ids=rng.random() < 0.8)
        if rng.random() < 0.1 and (old := sorted({0, 1, 2} - purged)) and day(old[0]).name in cube.raw:
            cube.purge(old[0])
            purged.add(old[0])
        if rng.random() < 0.5:
            step = rng.choice(STEPS)
            publisher = cube.publisher(publication, reached=killed_at(step, rng.randrange(2)))
        try:
            publisher.look()
        except Killed:
            kills += 1
            publisher = cube.publisher(publication)
        assert_named_is_held(cube)
    cube.publisher(publication).look()
    cube.assert_published(publication)
    assert kills, f"seed {seed} kills nobody"


@pytest.mark.parametrize("snapshots", [AT_ONCE, PublicationSnapshots()], ids=["expired", "kept"])
def test_a_predecessor_that_was_only_slow_commits_nothing(
    cube: PublishedCube, snapshots: PublicationSnapshots
) -> None:
    """It has written its holds and read the records. Its version is purged before it goes on."""
    publication = cube.declared(snapshots=snapshots)
    cube.promote(0)
    cube.publisher(publication).look()
    cube.promote(1)

    def overtaken(step: str) -> None:
        if step != "verified":
            return
        cube.purge(1)
        successor = cube.publisher(publication)
        assert successor.look().committed == 1, "a snapshot that keeps the slow one out"
        assert not cube.records.holds(NAME).hold(day(1), 1), "the purge may delete it from here on"

    slow = cube.publisher(publication, reached=overtaken)
    with pytest.raises(CommitConflict):
        slow.look()
    cube.assert_published(publication)


def test_a_version_that_is_replaced_while_it_is_published_is_not_named(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)
    seen: list[str] = []

    def replaced(step: str) -> None:
        seen.append(step)
        if step == "held" and seen.count("held") == 1:
            cube.promote(0)

    assert cube.publisher(publication, reached=replaced).look().committed == 1
    cube.assert_published(publication)


# -- snapshots and metadata ------------------------------------------------------------------------------


def test_snapshots_expire_by_age_and_by_number(cube: PublishedCube) -> None:
    publication = cube.declared(snapshots=PublicationSnapshots(expire_after_ms=3_600_000, count_max=3))
    publisher = cube.publisher(publication)
    for _ in range(6):
        cube.promote(0)
        look = publisher.look()
    assert look.snapshots == 3
    held = [version for version in range(1, 8) if cube.records.holds(NAME).hold(day(0), version)]
    assert held == [4, 5, 6]
    eager = cube.publisher(cube.publication(snapshots=AT_ONCE))
    cube.promote(0)
    assert eager.look().snapshots == 1
    assert [v for v in range(1, 8) if cube.records.holds(NAME).hold(day(0), v)] == [7]


def test_a_snapshot_that_a_reader_has_tagged_stays_with_its_files(cube: PublishedCube) -> None:
    publication = cube.declared(snapshots=AT_ONCE)
    publisher = cube.publisher(publication)
    cube.promote(0)
    look = publisher.look()
    assert look.snapshot_id is not None
    cube.table(publication).manage_snapshots().create_tag(look.snapshot_id, "report").commit()
    cube.promote(0)
    assert publisher.look().snapshots == 2
    assert cube.records.holds(NAME).hold(day(0), 1)
    tagged = cube.table(publication).scan(snapshot_id=look.snapshot_id).to_arrow()
    assert totals(tagged)["__rows"] == 20


def test_metadata_stays_bounded_over_many_snapshots(cube: PublishedCube) -> None:
    publication = cube.declared(snapshots=PublicationSnapshots(expire_after_ms=0))
    publisher = cube.publisher(publication)
    sizes, counts = [], []
    for number in range(40):
        cube.promote(number % 8, 2)
        sizes.append(publisher.look().metadata_bytes)
        counts.append(sum(1 for path in (cube.folder / "warehouse").rglob("*") if path.is_file()))
    assert max(sizes[20:]) <= 1.1 * max(sizes[10:20]), "the newest metadata file"
    assert max(counts[20:]) <= max(counts[10:20]) + 3, "all files of metadata"
    cube.assert_published(publication)


# -- others at the table ---------------------------------------------------------------------------------


def test_what_others_did_to_the_table_is_mended(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    cube.promote(1)
    publisher.look()
    table = cube.table(publication)
    table.append(read_files(cube.expected_files(cuboids(CUBE)[0])[:1]).cast(table.schema().as_arrow()))
    table.refresh()
    table.transaction().set_properties(
        {"gc.enabled": "true", "commit.retry.num-retries": "4"}
    ).commit_transaction()
    assert publisher.look().committed == 1
    cube.assert_published(publication)
    properties = cube.table(publication).properties
    assert (properties["gc.enabled"], properties["commit.retry.num-retries"]) == ("false", "0")


def test_a_table_that_was_dropped_or_rolled_back_is_made_right(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    cube.promote(0)
    first = publisher.look().snapshot_id
    assert first is not None
    cube.promote(1)
    publisher.look()
    cube.table(publication).manage_snapshots().rollback_to_snapshot(first).commit()
    publisher.look()
    cube.assert_published(publication)
    cube.catalog(publication).drop_table(publication.identifier)
    publisher.look()
    cube.assert_published(publication)


def test_a_table_of_somebody_else_is_left_alone(cube: PublishedCube) -> None:
    publication = cube.declared()
    catalog = cube.catalog(publication)
    catalog.create_namespace("olap")
    catalog.create_table(publication.identifier, pa.schema([("mine", pa.int64())]))
    cube.promote(0)
    with pytest.raises(AlreadyExists, match="somebody else's"):
        cube.publisher(publication).look()
    assert cube.table(publication).schema().column_names == ["mine"]


def test_a_table_with_other_columns_is_refused_until_it_is_reset(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)
    cube.publisher(publication).look()
    with cube.table(publication).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("weight__sum")
    with pytest.raises(Refused, match="rtolap publish reset lake_sales"):
        cube.publisher(publication).look()


# -- given up --------------------------------------------------------------------------------------------


def test_given_up_snapshots_are_replaced_by_one_of_what_is_there(cube: PublishedCube) -> None:
    """While its publisher was away, files that its snapshots name were deleted."""
    publication = cube.declared(batch=PublicationBatch(versions_max=1))
    old = cube.promote(0)
    cube.promote(1)
    cube.publisher(publication).look()
    cube.promote(0)
    cube.promote(1)
    cube.records.release(NAME)
    assert not cube.records.holds(NAME).hold(day(0), 1)
    assert old.location is not None
    cube.files.delete_tree(old.location)
    look = cube.publisher(publication).look()
    assert look.snapshots == 1
    cube.assert_published(publication)
    assert_named_is_held(cube)
    assert not cube.records.holds(NAME).released
    assert cube.publisher(publication).look().committed == 0


@pytest.mark.parametrize("step", ["held", "verified", "committed", "expired"])
def test_a_publisher_that_is_killed_while_it_comes_back_leaves_no_broken_snapshot(
    cube: PublishedCube, step: str
) -> None:
    publication = cube.declared()
    old = cube.promote(0)
    cube.publisher(publication).look()
    cube.promote(0)
    cube.records.release(NAME)
    assert old.location is not None
    cube.files.delete_tree(old.location)
    with pytest.raises(Killed):
        cube.publisher(publication, reached=killed_at(step)).look()
    assert cube.publisher(publication).look().snapshots == 1
    found = verify_publication(cube.metadata, cube.files, publication)
    assert found.sound, found


def test_holds_that_a_person_gives_up_in_mid_look_are_not_taken_back(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)

    def released(step: str) -> None:
        if step == "table open":
            cube.records.release(NAME)

    publisher = cube.publisher(publication, reached=released)
    try:
        publisher.look()
    except NotYet:
        assert cube.records.holds(NAME).released
    assert cube.records.holds(NAME) != PublicationHolds()
    look = cube.publisher(publication).look()
    assert look.snapshots == 1
    cube.assert_published(publication)


def test_a_check_names_what_is_missing_surplus_or_gone(cube: PublishedCube) -> None:
    publication = cube.declared()
    cube.promote(0)
    cube.publisher(publication).look()
    assert verify_publication(cube.metadata, cube.files, publication).sound
    cube.promote(0)
    found = verify_publication(cube.metadata, cube.files, publication)
    assert (len(found.missing), len(found.surplus), found.gone) == (2, 2, ())
    cube.files.delete_tree(f"{found.surplus[0].removeprefix(cube.files.uri('') + '/').rsplit('/', 2)[0]}")
    assert verify_publication(cube.metadata, cube.files, publication).gone == found.surplus

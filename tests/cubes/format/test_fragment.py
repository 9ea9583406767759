import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.fragment import (
    delete_fragment,
    fragment_paths,
    open_fragment,
    open_unverified,
    write_fragment,
)
from rtolap.model.cube import Schema
from rtolap.model.predicate import And, Compare, In

from tests.support.hostile.lost_sectors import small_disk

Events = Callable[[int, int], pa.Table]


@pytest.fixture
def local(schema: Schema, random_events: Events) -> pa.Table:
    return merge_tables(schema, list(aggregate_events(schema, random_events(7, 300)).values()))


def test_a_fragment_reads_back_as_it_was_written(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    info = write_fragment(tmp_path, "f1", local, schema)
    fragment = open_fragment(tmp_path / "f1.fragment", verify=True)
    assert fragment.table.equals(local)
    assert fragment.info == info
    assert (info.rows, info.events) == (local.num_rows, 300)
    assert info.ranges["city"].min == ""
    assert info.ranges["city"].max == "Æ"
    assert info.ranges["hour_start"].min == "2013-01-01 05:00:00.000000"
    assert fragment_paths(tmp_path) == [tmp_path / "f1.fragment"]


def test_an_empty_fragment_is_possible(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    write_fragment(tmp_path, "f1", local.slice(0, 0), schema)
    fragment = open_fragment(tmp_path / "f1.fragment", verify=True)
    assert fragment.select(Compare("city", "eq", "Oslo")).table.num_rows == 0


def test_times_outside_the_range_prune_the_whole_fragment(
    schema: Schema, local: pa.Table, tmp_path: Path
) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    fragment = open_fragment(tmp_path / "f1.fragment", verify=False)
    selection = fragment.select(
        And((Compare("hour_start", "ge", "2013-01-01 09:00:00"), In("city", ("Oslo",))))
    )
    assert (selection.rows_scanned, selection.rows_pruned) == (0, local.num_rows)


def test_the_index_prunes_rows_by_value(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    selection = open_fragment(tmp_path / "f1.fragment", verify=False).select(Compare("city", "eq", "Oslo"))
    assert selection.rows_scanned == selection.table.num_rows > 0
    assert set(selection.table.column("city").to_pylist()) == {"Oslo"}


def test_a_deleted_fragment_is_gone_and_its_readers_go_on(
    schema: Schema, local: pa.Table, tmp_path: Path
) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    fragment = open_fragment(tmp_path / "f1.fragment", verify=False)
    delete_fragment(tmp_path, "f1")
    delete_fragment(tmp_path, "f1")
    assert list(tmp_path.iterdir()) == []
    assert to_plain(schema, fragment.table).equals(to_plain(schema, local))
    with pytest.raises(NotFound):
        open_fragment(tmp_path / "f1.fragment", verify=False)


@pytest.mark.parametrize("suffix", [".fragment", ".arrow"])
def test_damage_to_any_byte_is_found(schema: Schema, local: pa.Table, tmp_path: Path, suffix: str) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    path = tmp_path / f"f1{suffix}"
    good = path.read_bytes()
    rng = random.Random(suffix)
    for place in [*range(24), *(rng.randrange(len(good)) for _ in range(200)), len(good) - 1]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Corrupted):
            open_fragment(tmp_path / "f1.fragment", verify=True)
    for cut in (0, 10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(Corrupted):
            open_fragment(tmp_path / "f1.fragment", verify=False)
    path.write_bytes(good + b"\0")
    with pytest.raises(Corrupted):
        open_fragment(tmp_path / "f1.fragment", verify=False)
    path.write_bytes(good)
    open_fragment(tmp_path / "f1.fragment", verify=True)


@pytest.mark.parametrize("suffix", [".fragment", ".arrow"])
def test_a_fragment_may_be_verified_before_its_first_use_instead_of_when_it_is_opened(
    schema: Schema, local: pa.Table, tmp_path: Path, suffix: str
) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    path = tmp_path / f"f1{suffix}"
    good = path.read_bytes()
    predicate = Compare("city", "eq", "Oslo")
    rng = random.Random(suffix)
    found_at_opening = 0
    for place in (rng.randrange(len(good)) for _ in range(100)):
        damaged = bytearray(good)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            fragment = open_unverified(tmp_path / "f1.fragment", schema)
        except Corrupted:
            found_at_opening += 1
            continue
        for _ in range(2):
            with pytest.raises(Corrupted):
                fragment.select(predicate)
        assert not fragment.verified
    assert found_at_opening < 100
    path.write_bytes(good)
    fragment = open_unverified(tmp_path / "f1.fragment", schema)
    assert fragment.select(Compare("hour_start", "ge", "2100-01-01 00:00:00")).rows_scanned == 0
    assert not fragment.verified, "what its header excludes is not read"
    assert fragment.select(predicate).table.num_rows > 0
    assert fragment.verified


def test_an_index_that_was_deleted_with_its_fragment_rules_nothing_out(
    schema: Schema, local: pa.Table, tmp_path: Path
) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    predicate = Compare("city", "eq", "Oslo")
    expected = open_fragment(tmp_path / "f1.fragment", verify=True).select(predicate)
    fragment = open_unverified(tmp_path / "f1.fragment", schema)
    delete_fragment(tmp_path, "f1")
    found = fragment.select(predicate)
    assert found.table.equals(expected.table)
    assert (found.rows_scanned, found.rows_pruned) == (local.num_rows, 0)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.98])
@pytest.mark.parametrize("suffix", [".fragment", ".arrow"])
def test_bytes_that_the_disk_cannot_read_are_corruption(
    schema: Schema, random_events: Events, tmp_path: Path, suffix: str, part: float
) -> None:
    """Touching such a page of a map would end the process, and each one that is started after it."""
    events = aggregate_events(schema, random_events(7, 20_000))
    write_fragment(tmp_path, "f1", merge_tables(schema, list(events.values())), schema)
    with small_disk(tmp_path / "mounted") as disk:
        disk.lose(tmp_path / f"f1{suffix}", part)
        with pytest.raises(Corrupted, match=f"f1{suffix} cannot be read from its disk") as caught:
            open_unverified(tmp_path / "f1.fragment", schema).select(Compare("city", "eq", "Oslo"))
        assert "it replays from Kafka" in str(caught.value)
        with pytest.raises(Corrupted, match="cannot be read from its disk"):
            open_fragment(tmp_path / "f1.fragment", verify=True)


def test_lost_data_is_corruption(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    (tmp_path / "f1.arrow").unlink()
    with pytest.raises(Corrupted):
        open_fragment(tmp_path / "f1.fragment", verify=False)


def test_other_columns_are_refused(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError):
        write_fragment(tmp_path, "f1", local.drop_columns(["city"]), schema)


def resident_kb(path: Path) -> int:
    """Return how much of the file this process has mapped and read."""
    found = 0
    is_file = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            is_file = line.endswith(str(path))
        elif is_file and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_released_pages_are_read_again(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    whole = pa.concat_tables([local] * 200).combine_chunks()
    write_fragment(tmp_path, "f1", whole, schema)
    fragment = open_fragment(tmp_path / "f1.fragment", verify=True)
    assert fragment.table.equals(whole)
    path = tmp_path / "f1.arrow"
    before_kb = resident_kb(path)
    assert before_kb > path.stat().st_size // 2048
    fragment.release_pages()
    assert resident_kb(path) < before_kb // 4
    assert fragment.table.equals(whole)


def test_the_checksum_is_that_of_the_file(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    info = write_fragment(tmp_path, "f1", local, schema)
    data = (tmp_path / "f1.arrow").read_bytes()
    assert (info.arrow_bytes, info.arrow_xxh3) == (len(data), xxhash.xxh3_64_hexdigest(data))


def test_a_file_without_bytes_is_damaged(schema: Schema, local: pa.Table, tmp_path: Path) -> None:
    write_fragment(tmp_path, "f1", local, schema)
    (tmp_path / "f1.arrow").write_bytes(b"")
    with pytest.raises(Corrupted, match="length"):
        open_fragment(tmp_path / "f1.fragment", verify=True)

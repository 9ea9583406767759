"""Damaged bytes are found wherever they are and named; a log's torn end is no damage."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.engine import compaction
from rtolap.stored.engine.copying import MANIFEST, Arriving, Chunk, CopiedVersion, Manifest
from rtolap.stored.engine.files import bloom
from rtolap.stored.engine.rows.keys import hashes
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import DeletesFile, FileMeta, Rowset, TabletState
from rtolap.stored.engine.tablet import Tablet

from tests.support.hostile.lost_sectors import small_disk

SCHEMA = initial_schema(
    StoredTable(
        database="d",
        name="t",
        model="unique",
        keys=("id",),
        columns=(StoredColumn("id", "bigint"), StoredColumn("note", "string")),
    )
)
SETTINGS = TabletSettings(block_rows=8, compaction_files_min=3)
KINDS = {"published rows": "v4/0.rows", "compacted rows": "c1/0.rows", "deletes": "deletes/*", "log": "log-*"}


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "note": [f"note {id}" for id in ids]})


def load(tablet: Tablet, txn: int, *ids: int) -> None:
    transaction = tablet.begin(txn)
    transaction.add_rows(rows(*ids))
    transaction.prepare()


def read(tablet: Tablet) -> list[int]:
    with tablet.pin() as snapshot:
        return sorted(id for batch in snapshot.read(["id"]) for id in batch.column("id").to_pylist())


@pytest.fixture(scope="module")
def whole_tablet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With files of all kinds: compacted and published rows, deletes, something prepared."""
    root = tmp_path_factory.mktemp("whole") / "tablet"
    open_one = Tablet.create(root, SCHEMA, SETTINGS)
    for version in range(1, 4):
        load(open_one, version, *range(version * 10, version * 10 + 20))
        open_one.publish(version, version)
    assert open_one.compact()
    load(open_one, 4, *range(35, 60))
    open_one.publish(4, 4)
    load(open_one, 5, 1)
    open_one.close()
    return root


@pytest.fixture
def tablet(whole_tablet: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(whole_tablet, tmp_path / "tablet")


def damaged(file: Path, at: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_any_bit_that_is_wrong_is_found_when_the_tablet_is_opened(
    tablet: Path, tmp_path: Path, kind: str
) -> None:
    rng = random.Random(kind)
    (name,) = {path.relative_to(tablet) for path in tablet.rglob(KINDS[kind])}
    size = (tablet / name).stat().st_size
    for turn in range(25):
        copy = tmp_path / str(turn)
        shutil.copytree(tablet, copy)
        damaged(copy / name, rng.randrange(size), rng.randrange(8))
        with pytest.raises(Corrupted) as caught:
            Tablet.open(copy, SETTINGS)
        assert str(name.name) in str(caught.value)
        assert "restore the tablet from another replica" in str(caught.value)


@pytest.mark.parametrize("kind", ["published rows", "compacted rows", "deletes"])
@pytest.mark.parametrize("how", ["cut short", "gone", "longer"])
def test_a_file_that_is_not_whole_is_named(tablet: Path, kind: str, how: str) -> None:
    (file,) = tablet.rglob(KINDS[kind])
    data = file.read_bytes()
    match how:
        case "gone":
            file.unlink()
        case "cut short":
            file.write_bytes(data[: len(data) // 2])
        case _:
            file.write_bytes(data + bytes(64))
    with pytest.raises(Corrupted, match=str(file.name)):
        Tablet.open(tablet, SETTINGS)


@pytest.mark.parametrize("moment", ["before it is read", "while it is read", "when it was read"])
def test_damage_since_a_tablet_was_opened_gets_no_new_checksum(
    tablet: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """What is compacted is mapped, and was whole when it was opened; Arrow reads it either way."""
    opened = Tablet.open(tablet, msgspec.structs.replace(SETTINGS, compaction_files_min=2))
    (file,) = tablet.rglob(KINDS["published rows"])
    notes = [place.start() for place in re.finditer(rb"note \d", file.read_bytes())]
    at = random.Random(moment).choice(notes)
    tables = compaction._tables

    def damaged_meanwhile(*args: Any) -> Iterator[pa.Table]:
        if moment == "while it is read":
            changed_in_place(file, at)
        yield from tables(*args)
        if moment == "when it was read":
            changed_in_place(file, at)

    monkeypatch.setattr(compaction, "_tables", damaged_meanwhile)
    if moment == "before it is read":
        changed_in_place(file, at)
    before = {path.relative_to(tablet) for path in tablet.rglob("*")}
    with pytest.raises(Corrupted, match=file.name):
        opened.compact()
    assert file.name in (opened.status().stopped or "")
    assert {path.relative_to(tablet) for path in tablet.rglob("*")} == before, "of the attempt, nothing stays"
    opened.close()
    with pytest.raises(Corrupted, match=file.name):
        Tablet.open(tablet, SETTINGS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_while_a_tablet_is_open_is_found_when_it_is_verified(tablet: Path, kind: str) -> None:
    rng = random.Random(kind)
    opened = Tablet.open(tablet, SETTINGS)
    assert sum(opened.verify()) == sum(
        path.stat().st_size for path in tablet.rglob("*") if path.is_file() and "pending" not in path.parts
    )
    (file,) = tablet.rglob(KINDS[kind])
    with file.open("r+b") as changed:
        changed.seek(rng.randrange(file.stat().st_size))
        (byte,) = changed.read(1)
        changed.seek(-1, os.SEEK_CUR)
        changed.write(bytes([byte ^ 1 << rng.randrange(8)]))
    with pytest.raises(Corrupted, match=file.name):
        list(opened.verify())
    assert file.name in (opened.status().stopped or "")
    opened.close()
    with pytest.raises(Corrupted, match=file.name):
        Tablet.open(tablet, SETTINGS)


def test_a_tablet_is_verified_while_it_is_loaded_compacted_and_read(tablet: Path) -> None:
    opened = Tablet.open(tablet, msgspec.structs.replace(SETTINGS, compaction_files_min=2))
    verified = opened.verify()
    next(verified)
    while opened.compact():
        """Until there is nothing more to do: files that are to be verified are replaced."""
    load(opened, 6, 7)
    assert sum(1 for _ in verified) >= 1
    assert read(opened) == list(range(10, 60))
    assert {path.name for path in (tablet / "rowsets").iterdir()} == {"c2"}, "nothing stays pinned"
    opened.close()


@pytest.mark.parametrize("part", [0.0, 0.6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_the_disk_cannot_read_is_named(
    tablet: Path, tmp_path: Path, kind: str, part: float
) -> None:
    """Reads fail, and touching a mapped page of it would end the process."""
    (file,) = tablet.rglob(KINDS[kind])
    opened = Tablet.open(tablet, SETTINGS)
    with small_disk(tmp_path / "mounted") as disk:
        disk.lose(file, part)
        with pytest.raises(Corrupted, match=f"{file.name} cannot be read from its disk"):
            list(opened.verify())
        opened.close()
        with pytest.raises(Corrupted, match="restore the tablet from another replica") as caught:
            Tablet.open(tablet, SETTINGS)
        assert file.name in str(caught.value)


def changed_in_place(file: Path, at: int) -> None:
    """Change a letter of a text: of what is mapped as well."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"N")


def test_damage_in_prepared_rows_is_found_before_they_are_visible(tablet: Path) -> None:
    (file,) = tablet.glob("pending/5/*.rows")
    damaged(file, 200, 0)
    reopened = Tablet.open(tablet, SETTINGS)
    with pytest.raises(Corrupted, match="checksum"):
        reopened.publish(5, 5)
    assert reopened.version == 4
    assert read(reopened) == list(range(10, 60))
    reopened.close()


def test_a_log_that_ends_in_the_middle_of_a_record_goes_on_before_it(tmp_path: Path) -> None:
    root = tmp_path / "tablet"
    made = Tablet.create(root, SCHEMA, SETTINGS)
    (log,) = root.glob("log-*")
    ends = [log.stat().st_size]
    for version in range(1, 3):
        load(made, version, version)
        ends.append(log.stat().st_size)
        made.publish(version, version)
        ends.append(log.stat().st_size)
    made.close()
    data = log.read_bytes()
    for length in range(ends[2] + 1, len(data), 7):
        copy = tmp_path / str(length)
        shutil.copytree(root, copy)
        (copy / "rowsets/v2").rename(copy / "pending/2")  # what came after the record has not happened yet
        for torn in (data[:length], data[:length] + bytes(ends[4] - length)):
            (copy / log.name).write_bytes(torn)
            reopened = Tablet.open(copy, SETTINGS)
            assert reopened.version == 1
            assert reopened.status().prepared == ((2,) if length >= ends[3] else ())
            assert read(reopened) == [1]
            reopened.close()
            if length < ends[3]:
                break  # the pending folder is gone now
        shutil.rmtree(copy)


def test_what_is_no_tablet_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Tablet.open(tmp_path, SETTINGS)


def test_the_bloom_filter_misses_nothing_and_is_seldom_wrong() -> None:
    inside, outside = hashes([pa.array(range(20_000))]), hashes([pa.array(range(10**6, 10**6 + 100_000))])
    words = bloom.build(inside)
    assert bloom.may_contain(words, inside).all()
    wrong_ppm = 1e6 * np.count_nonzero(bloom.may_contain(words, outside)) / len(outside)
    assert wrong_ppm < 20_000, wrong_ppm
    assert words.nbytes <= 4 * len(inside)


@pytest.mark.parametrize(
    "name", ["../../escaped.rows", "/tmp/escaped.rows", "a/b.rows", "..", ".", "", "a\0b", "log-00000001\n"]
)
@pytest.mark.parametrize("where", ["file", "rowset", "version", "deletes"])
def test_a_copy_that_names_a_strange_file_is_refused_before_it_is_written(name: str, where: str) -> None:
    """The names become paths; a node that was taken over could send any."""
    file = FileMeta(name if where in ("file", "version") else "0.rows", 1, 1)
    deletes = (DeletesFile(name if where == "deletes" else "copied", 0),)
    rowset = Rowset(name if where == "rowset" else "v1", 1, 1, (file,))
    if where == "version":
        manifest = Manifest(1, versions=(CopiedVersion(1, 1, (file,)),))
    else:
        manifest = Manifest(
            1, state=TabletState(schema=SCHEMA, version=1, rowsets=(rowset,), deletes=deletes)
        )
    with pytest.raises(Corrupted, match="a copy of a tablet"):
        Arriving(iter([Chunk(MANIFEST, msgspec.msgpack.encode(manifest))]))


def test_a_copy_without_a_readable_manifest_is_named() -> None:
    with pytest.raises(Corrupted, match="manifest"):
        Arriving(iter([Chunk(MANIFEST, b"\xc1 no manifest")]))

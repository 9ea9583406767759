"""A snapshot's file gives back the snapshot, and damage is named."""

from __future__ import annotations

import io
import zipfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import Corrupted, NotFound, SchemaTooNew
from rtolap.fleet.snapshot.file import digest_of, from_bytes, load, save, to_bytes
from rtolap.fleet.snapshot.model import FleetSnapshot, MissingFact, Quota

from tests.support.fleet.random_fleets import random_fleet
from tests.support.seeds import so_many


def _assert_equal(one: Any, other: Any) -> None:
    for field in fields(one):
        mine, yours = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(mine):
            _assert_equal(mine, yours)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == yours.dtype
            np.testing.assert_array_equal(mine, yours)
        else:
            assert mine == yours


def _with_words(snapshot: FleetSnapshot) -> FleetSnapshot:
    return replace(
        snapshot,
        quotas=(Quota((("client-id", None), ("user", "ürs")), "producer_byte_rate", 1e6),),
        missing=(
            MissingFact("log dirs of broker 3", "no right to describe the cluster", ("disks", "drain")),
        ),
    )


@pytest.mark.seeded
def test_random_fleets_come_back_as_they_were(tmp_path: Path) -> None:
    for seed in range(so_many(20)):
        snapshot = _with_words(random_fleet(seed))
        save(snapshot, tmp_path / "fleet")
        back = load(tmp_path / "fleet")
        _assert_equal(snapshot, back)
        assert digest_of(back) == digest_of(snapshot)
        assert to_bytes(back) == (tmp_path / "fleet").read_bytes()


def test_a_fleet_without_topics_comes_back() -> None:
    whole = random_fleet(3)
    none = {
        name: replace(table, **{f.name: getattr(table, f.name)[:0] for f in fields(table)})
        for name in ("topics", "partitions", "replicas")
        for table in [getattr(whole, name)]
    }
    none["partitions"] = replace(none["partitions"], first_replicas=np.zeros(1, np.int64))
    empty = replace(whole, **none)
    _assert_equal(empty, from_bytes(to_bytes(empty), "f"))


def test_each_fact_is_in_the_digest() -> None:
    fleets = (random_fleet(seed) for seed in range(50))
    snapshot = _with_words(next(f for f in fleets if min(len(f.brokers), len(f.topics)) > 2))
    digests = {digest_of(snapshot)}
    for change in (
        {"cluster_id": "x"},
        {"taken_at_ms": 1},
        {"controller": -1},
        {"quotas": ()},
        {"missing": ()},
    ):
        digests.add(digest_of(replace(snapshot, **change)))
    changed = 6
    for table in ("brokers", "log_dirs", "topics", "partitions", "replicas"):
        value = getattr(snapshot, table)
        for field in fields(value):
            column = getattr(value, field.name)
            if isinstance(column, tuple):
                other: Any = ("else", *column[1:])
            else:
                other = column.copy()
                other[1] = not other[1] if other.dtype == bool else other[1] + 1
            digests.add(digest_of(replace(snapshot, **{table: replace(value, **{field.name: other})})))
            changed += 1
    assert len(digests) == changed


@pytest.mark.seeded
def test_a_truncated_or_damaged_file_is_named() -> None:
    data = to_bytes(random_fleet(7))
    rng = np.random.default_rng(7)
    for end in rng.integers(0, len(data), so_many(40)):
        with pytest.raises(Corrupted, match=r"fleet\.zip"):
            from_bytes(data[:end], "fleet.zip")
    unharmed = 0
    for place in rng.integers(0, len(data), so_many(200)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        try:
            back = from_bytes(bytes(damaged), "fleet.zip")
        except (Corrupted, SchemaTooNew):
            continue
        unharmed += 1  # a bit that says nothing, such as a member's attributes
        _assert_equal(random_fleet(7), back)
    assert unharmed < so_many(200) // 4


def _rewritten(data: bytes, member: str, change: Any) -> bytes:
    """The archive with that member's bytes changed, or without it where the change gives None."""
    whole = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(whole, "w") as new:
        for name in old.namelist():
            body = change(old.read(name)) if name == member else old.read(name)
            if body is not None:
                new.writestr(name, body)
    return whole.getvalue()


def test_another_version_another_format_and_other_content_are_told_apart(tmp_path: Path) -> None:
    data = to_bytes(random_fleet(9))
    later = _rewritten(data, "snapshot.json", lambda b: b.replace(b'"version": 1', b'"version": 2, "new": 3'))
    with pytest.raises(SchemaTooNew, match="found version 2"):
        from_bytes(later, "f")
    other = _rewritten(data, "snapshot.json", lambda b: b.replace(b"fleet snapshot", b"fleet holiday"))
    with pytest.raises(Corrupted, match="holiday"):
        from_bytes(other, "f")
    swapped = zipfile.ZipFile(io.BytesIO(to_bytes(random_fleet(10)))).read("brokers.arrow")
    with pytest.raises(Corrupted):
        from_bytes(_rewritten(data, "brokers.arrow", lambda _: swapped), "f")
    with pytest.raises(Corrupted, match="digest"):
        from_bytes(_rewritten(data, "snapshot.json", lambda b: b.replace(b"cluster-9", b"cluster-8")), "f")
    with pytest.raises(Corrupted, match=r"no replicas\.arrow"):
        from_bytes(_rewritten(data, "replicas.arrow", lambda _: None), "f")
    topics = zipfile.ZipFile(io.BytesIO(data)).read("topics.arrow")
    with pytest.raises(Corrupted, match="other columns"):
        from_bytes(_rewritten(data, "brokers.arrow", lambda _: topics), "f")
    with pytest.raises(NotFound):
        load(tmp_path / "none")

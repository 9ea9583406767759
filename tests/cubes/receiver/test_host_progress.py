"""How far hosts are, as a receiver's reading says, held against a plain recount of the events."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from rtolap.columnar.schema import EVENT_MS, PARTITION
from rtolap.cubes.receiver.hosts.batch_progress import heard, stated
from rtolap.cubes.receiver.hosts.host_progress import HostProgress, SavedHosts
from rtolap.protocols.watermark.messages import NAMELESS
from rtolap.watermark.forgetting import SILENT_MS
from rtolap.watermark.records.columns import UNKNOWN_MS, Statements

Row = tuple[int, str | None, int, int]  # partition, host, event time, the record's own timestamp (-1: none)


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "host": pa.array([row[1] for row in rows], pa.string()),
            EVENT_MS: pa.array([row[2] for row in rows], pa.int64()),
            PARTITION: pa.array([row[0] for row in rows], pa.int32()),
        }
    )


def took(progress: HostProgress, rows: list[Row], host_column: str | None = "host") -> dict[int, int]:
    created = np.array([row[3] for row in rows], np.int64)
    return progress.took(heard(table(rows), created, host_column))


def plain(rows: list[Row]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for partition, host, event_ms, created_ms in rows:
        if host is None:
            continue
        counted = event_ms if created_ms < 0 else min(event_ms, created_ms)
        hosts = found.setdefault(partition, {})
        hosts[host] = max(counted, hosts.get(host, counted))
    return found


def random_rows(random_: random.Random, count: int) -> list[Row]:
    return [
        (
            random_.randrange(4),
            random_.choice([None, *(f"h{n}" for n in range(7))]),
            random_.randrange(1_000),
            random_.choice((-1, random_.randrange(1_000))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(50))
def test_progress_is_that_of_a_plain_recount_however_batches_are_cut(seed: int) -> None:
    random_ = random.Random(seed)
    rows = random_rows(random_, random_.randrange(1, 200))
    progress = HostProgress()
    said: dict[int, dict[str, int]] = {}
    counted: dict[tuple[int, str], int] = {}
    at = 0
    while at < len(rows):
        size = random_.randrange(1, 40)
        took(progress, rows[at : at + size])
        at += size
        if random_.random() < 0.3:  # only changes are said, and every event is counted once
            for partition, one in progress.drain(range(4), whole=random_.random() < 0.2).items():
                for host, latest_ms, events in zip(one.hosts, one.latest_ms, one.events, strict=True):
                    said.setdefault(partition, {})[host] = int(latest_ms)
                    counted[partition, host] = counted.get((partition, host), 0) + int(events)
        if random_.random() < 0.1:
            saved = msgspec.json.decode(msgspec.json.encode(progress.saved()), type=SavedHosts)
            again = HostProgress()
            again.recover(saved)
            assert again.latest_ms() == progress.latest_ms()
    for partition, one in progress.drain(range(4), whole=False).items():
        for host, latest_ms, events in zip(one.hosts, one.latest_ms, one.events, strict=True):
            said.setdefault(partition, {})[host] = int(latest_ms)
            counted[partition, host] = counted.get((partition, host), 0) + int(events)
    assert progress.latest_ms() == plain(rows)
    assert said == plain(rows)
    for (partition, host), events in counted.items():
        assert events == sum(1 for row in rows if (row[0], row[1]) == (partition, host))


def test_a_new_generation_is_told_everything_and_an_empty_partition_too() -> None:
    progress = HostProgress()
    took(progress, [(0, "a", 5, -1), (1, "b", 7, -1)])
    progress.drain([0, 1], whole=False)
    whole = progress.drain([0, 1, 2], whole=True)
    assert {p: (one.hosts, one.latest_ms.tolist()) for p, one in whole.items()} == {
        0: (("a",), [5]),
        1: (("b",), [7]),
        2: ((), []),
    }


def test_what_was_given_away_is_forgotten() -> None:
    progress = HostProgress()
    took(progress, [(0, "a", 5, -1), (1, "a", 7, -1)])
    progress.keep_only({1})
    took(progress, [(0, "a", 3, -1)])
    assert progress.latest_ms() == {0: {"a": 3}, 1: {"a": 7}}


def test_without_a_host_column_all_events_are_of_one_nameless_host() -> None:
    progress = HostProgress()
    took(progress, [(0, "a", 5, -1), (0, None, 9, 8)], host_column=None)
    assert progress.latest_ms() == {0: {NAMELESS: 8}}


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 256, "tab\there"])
def test_a_name_that_is_none_moves_nothing_and_is_counted(name: str | None) -> None:
    progress = HostProgress()
    lost = took(progress, [(0, name, 5, -1), (1, name, 6, -1), (1, name, 6, -1), (0, "a", 3, -1)])
    assert progress.latest_ms() == {0: {"a": 3}}
    assert lost == {0: 1, 1: 2}


def test_hosts_beyond_the_bound_are_counted_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtolap.cubes.receiver.hosts.host_progress.HOSTS_MAX", 2)
    progress = HostProgress()
    took(progress, [(0, "a", 1, -1), (0, "b", 2, -1)])
    lost = took(progress, [(0, "c", 3, -1), (0, "a", 4, -1)])
    assert progress.latest_ms() == {0: {"a": 4, "b": 2}}
    assert lost == {0: 1}


def places(monkeypatch: pytest.MonkeyPatch, number: int) -> HostProgress:
    monkeypatch.setattr("rtolap.cubes.receiver.hosts.host_progress.HOSTS_MAX", number)
    return HostProgress()


def test_where_names_are_used_up_those_that_no_partition_holds_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = places(monkeypatch, 3)
    took(progress, [(0, "a", 1, -1), (1, "b", 2, -1), (1, "c", 3, -1)])
    progress.keep_only({1})
    progress.drain([1], whole=False)
    assert took(progress, [(1, "d", 4, -1), (1, "c", 5, -1)]) == {}
    assert progress.latest_ms() == {1: {"b": 2, "c": 5, "d": 4}}
    said = progress.drain([1], whole=False)[1]
    assert dict(zip(said.hosts, said.events.tolist(), strict=True)) == {"c": 1, "d": 1}
    again = HostProgress()
    again.recover(progress.saved())
    assert again.latest_ms() == progress.latest_ms()
    assert sorted(progress.saved().names) == ["b", "c", "d"]


def test_then_hosts_that_have_been_silent_for_a_day_do_and_are_named_again_when_they_speak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = places(monkeypatch, 3)
    took(progress, [(0, "a", 1, -1), (0, "b", 2, -1), (1, "b", 7, -1), (0, "c", 9, -1)])
    assert took(progress, [(0, "d", SILENT_MS + 7, -1)]) == {}
    assert progress.latest_ms() == {0: {"b": 2, "c": 9, "d": SILENT_MS + 7}, 1: {"b": 7}}, "by its newest"
    assert took(progress, [(0, "e", 3 * SILENT_MS, -1), (1, "b", 8, -1), (1, "a", 9, -1)]) == {}
    assert progress.latest_ms() == {0: {"e": 3 * SILENT_MS}, 1: {"b": 8, "a": 9}}
    lost = took(progress, [(0, "f", 3 * SILENT_MS, -1), (0, "g", 3 * SILENT_MS, -1)])
    assert lost == {0: 2}, "whom to forget is looked for once a minute"
    assert took(progress, [(0, "f", 4 * SILENT_MS, -1), (0, "g", 4 * SILENT_MS, -1)]) == {}
    assert progress.latest_ms()[0] == {
        "e": 3 * SILENT_MS,
        "f": 4 * SILENT_MS,
        "g": 4 * SILENT_MS,
    }


def test_a_producer_is_not_forgotten_so_that_its_predecessor_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = places(monkeypatch, 1)
    progress.took(stated(statements({(0, "p"): (2, 5)})))
    progress.took(stated(statements({(0, "q"): (1, 3 * SILENT_MS)})))
    progress.took(stated(statements({(0, "p"): (1, 4 * SILENT_MS)})))
    assert progress.latest_ms() == {0: {"p": 5}}


def test_producers_that_state_watermarks_stand_for_hosts() -> None:
    progress = HostProgress()
    progress.took(
        stated(
            Statements(
                ("up", "up", "new"),
                np.array([0, 1, 0]),
                np.array([3, 3, 1]),
                np.array([50, 40, UNKNOWN_MS]),
                np.zeros(3, np.bool_),
            )
        )
    )
    assert progress.latest_ms() == {0: {"up": 50}, 1: {"up": 40}}


def test_of_a_producer_the_latest_generation_counts_over_batches_and_restarts() -> None:
    """Against a plain record of each statement; the largest watermark alone would believe a predecessor."""
    for seed in range(100):
        random_ = random.Random(seed)
        progress, plain_ = HostProgress(), dict[tuple[int, str], tuple[int, int]]()
        for _ in range(20):
            watermarks = {
                (random_.randrange(2), random_.choice("pqr")): (
                    random_.randrange(4),
                    random_.choice((UNKNOWN_MS, random_.randrange(100))),
                )
                for _ in range(random_.randrange(4))
            }
            for key, one in watermarks.items():
                plain_[key] = max(plain_.get(key, one), one)
            progress.took(stated(statements(watermarks)))
            if random_.random() < 0.2:
                again = HostProgress()
                again.recover(msgspec.json.decode(msgspec.json.encode(progress.saved()), type=SavedHosts))
                progress = again
            known = {key: one[1] for key, one in plain_.items() if one[1] != UNKNOWN_MS}
            found = {
                (partition, producer): at_ms
                for partition, hosts in progress.latest_ms().items()
                for producer, at_ms in hosts.items()
            }
            assert found == known, seed


def statements(watermarks: dict[tuple[int, str], tuple[int, int]]) -> Statements:
    """(partition, producer) → (generation, watermark)."""
    return Statements(
        tuple(producer for _, producer in watermarks),
        np.array([partition for partition, _ in watermarks], np.int64),
        np.array([generation for generation, _ in watermarks.values()], np.int64),
        np.array([watermark_ms for _, watermark_ms in watermarks.values()], np.int64),
        np.zeros(len(watermarks), np.bool_),
    )

"""Seeded lives of a job that several processes share, and whether they notice faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from rtolap.stored.loader.job import Portion
from rtolap.stored.metastore import load_shares
from rtolap.stored.metastore.offsets import OffsetsRecord

from tests.support.loader.loader_runs import World
from tests.support.loader.loader_shared_runs import SharedRun, run_seed
from tests.support.seeds import notices, so_many

SEEDS = so_many(8)
_GROUPS = 1


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_has_its_effect_once_whoever_owns_its_share(group: int) -> None:
    """Replay a failure with `python -m tests.support.loader.loader_shared_runs --seed N`."""
    world, counts = World(), Counter[str]()
    for seed in range(group, SEEDS, _GROUPS):
        try:
            counts += SharedRun(world, seed).run()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    wanted = ("killed", "stood still", "share taken", "share given up", "share not free")
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def each_share_has_all_partitions_that_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Portion, "has_partition", lambda self, partition: True)


def a_job_is_divided_where_its_first_record_begins(patch: pytest.MonkeyPatch) -> None:
    """Not where the last one ends."""
    real = load_shares._first_record

    def first_record(last: OffsetsRecord, *arguments: Any) -> OffsetsRecord:
        share = real(last, *arguments)
        start = {partition: last.start_offsets[partition] for partition in share.end_offsets}
        return OffsetsRecord(**{**_fields(share), "start_offsets": start, "end_offsets": start})

    patch.setattr(load_shares, "_first_record", first_record)


def _fields(record: OffsetsRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize(
    ("fault", "first_seed"),
    [
        (each_share_has_all_partitions_that_come, 0),
        (a_job_is_divided_where_its_first_record_begins, 0),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(run_seed, first_seed, "differs from a recount")

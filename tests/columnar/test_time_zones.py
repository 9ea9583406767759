"""Local times by the rules of the machine, and what tells machines with other rules apart."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.serving import require_time_zones
from rtolap.columnar import time_zones
from rtolap.columnar.time_zones import local_time, require_zone, rules_of

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia")
_UNTIL_MS = 2_145_916_800_000


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_those_of_another_reader_of_the_same_rules(zone: str) -> None:
    rng = random.Random(zone)
    instants = [rng.randrange(0, _UNTIL_MS) for _ in range(500)]
    found = local_time(np.array(instants), zone).to_pylist()
    info = ZoneInfo(zone)
    assert found == [
        datetime.fromtimestamp(ms / 1000, UTC).astimezone(info).replace(tzinfo=None) for ms in instants
    ]


def test_rules_tell_zones_apart_and_names_of_one_zone_together() -> None:
    assert rules_of("UTC") == ""
    assert rules_of("Asia/Kolkata") == rules_of("Asia/Calcutta")
    assert len({rules_of(zone) for zone in ZONES}) == len(ZONES)


def test_one_hour_that_a_government_has_moved_makes_other_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)

    def moved(instant_ms: np.ndarray, zone: str) -> object:
        changed = instant_ms.copy()
        changed[rng.randrange(len(changed))] += 3_600_000
        return local_time(changed, zone)

    known = rules_of("Europe/Berlin")
    with monkeypatch.context() as patched:
        patched.setattr(time_zones, "local_time", moved)
        assert rules_of.__wrapped__("Europe/Berlin") != known


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "Europe", "../UTC"])
def test_a_zone_that_the_database_does_not_know_is_refused_with_what_to_do(zone: str) -> None:
    with pytest.raises(DefinitionError, match="update the system's package tzdata"):
        require_zone(zone)


def test_a_machine_without_the_database_is_told_so_before_it_serves(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"no database of time zones.*package tzdata"):
        require_time_zones((tmp_path,))
    (tmp_path / "UTC").touch()
    require_time_zones((tmp_path / "none", tmp_path))

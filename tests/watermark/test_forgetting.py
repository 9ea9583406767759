"""Which names stay where there is no room for all, held against a plain loop over the hosts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rtolap.watermark.forgetting import NEVER, SILENT_MS, worth_keeping


@pytest.mark.parametrize("seed", range(200))
def test_the_held_stay_and_of_too_many_the_recent(seed: int) -> None:
    random_ = random.Random(seed)
    names, room = random_.randrange(9), random_.randrange(9)
    newest_ms = random_.choice((NEVER, random_.randrange(4) * SILENT_MS))
    instants = (NEVER, NEVER + 1, 0, SILENT_MS - 1, SILENT_MS, 2 * SILENT_MS + 1)
    columns = [
        np.array([random_.choice(instants) for _ in range(random_.randrange(12))], np.int64) for _ in range(3)
    ]
    latest_ms = [
        max((int(one[at]) for one in columns if at < one.size), default=NEVER) for at in range(names)
    ]
    held = [at_ms != NEVER for at_ms in latest_ms]
    if sum(held) > room:
        since_ms = max(newest_ms, *latest_ms) - SILENT_MS
        held = [at_ms != NEVER and at_ms >= since_ms for at_ms in latest_ms]
    assert worth_keeping(columns, names, room, newest_ms).tolist() == held

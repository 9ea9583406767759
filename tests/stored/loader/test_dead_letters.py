"""Dead letters of a loader: replayed once, dropped, refused again, in drawn orders, with deaths between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.loader.letter_runs import LetterRun, shown
from tests.support.loader.stepped_loader import World
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock

SEEDS = 40


def test_a_letter_is_loaded_once_whatever_is_pressed_and_whoever_dies(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        clock = ManualClock(1_000_000)
        path = tmp_path / f"ledger-{seed}.db"
        with open_ledger(path, clock=clock, sleep=lambda _: None) as ledger:
            world = World(ledger, clock)
            world.sink = type(world.sink)(now_ms=clock.now_ms)
            run = LetterRun(ledger, world, seed)
            try:
                run.run()
            except BaseException:
                print(f"seed {seed}: {run.counts}")
                raise
            seen += run.counts
    for what in ("replayed", "refused again", "dropped", "went on", "began again"):
        assert seen[what] > 0, seen
    for step in ("begin", "note_sent", "load", "finish"):
        for where in ("before", "after"):
            assert seen[f"killed {where} {step}"] > 0, shown(seen)
            assert seen[f"stood still {where} {step}"] > 0, shown(seen)

"""The command that replays seeded runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable


def replay(description: str | None, run_seed: Callable[[int, int], Counter[str]], steps: int) -> None:
    """Runs seeds with so many steps each, unless the command line says otherwise; prints what happened."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on")
    parser.add_argument("--steps", type=int, default=steps)
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        print(seed, dict(run_seed(seed, arguments.steps)), flush=True)

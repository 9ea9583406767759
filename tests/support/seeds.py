"""Seeded runs: how many there are, the command that replays them, and whether they notice a planted fault.

RTOLAP_SEEDS=10 requests ten times as many of all of them, as `make soak` does.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

SEARCHED = 300
_SEARCHED_LONG = 3
_TIMES = int(os.environ.get("RTOLAP_SEEDS", "1"))


def so_many(quick: int, for_each_time: int | None = None) -> int:
    """Return the number of seeds, runs or inputs of a test: `quick` in `make test`, RTOLAP_SEEDS times as
    many.

    Where `make test` has a small sample only, RTOLAP_SEEDS is times `for_each_time`.
    """
    return quick * _TIMES if _TIMES == 1 or for_each_time is None else for_each_time * _TIMES


def replay(
    description: str | None,
    run_seed: Callable[..., Counter[str]],
    steps: int,
    features: type[StrEnum] | None = None,
) -> None:
    """Run seeds with so many steps each, unless the command line says otherwise; print what happened.

    Where runs have `features`, `run_seed` takes those that the command line names.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on")
    parser.add_argument("--steps", type=int, default=steps)
    if features is not None:
        parser.add_argument(
            "--with", dest="features", nargs="+", type=features, choices=list(features), default=()
        )
    arguments = parser.parse_args()
    named = {} if features is None else {"features": arguments.features}
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        print(seed, dict(run_seed(seed, steps=arguments.steps, **named)), flush=True)


def notices(run_seed: Callable[[int], object], first_seed: int, said: str, *, seeds: int = SEARCHED) -> bool:
    """Return whether one of so many seeds fails with `said` in its AssertionError. Any other error goes on.

    `first_seed` is known to find the fault, so that the search is short; a change of the run moves it to
    another seed, and the search goes on. A long search is repeated by every run of all tests: a warning names
    the seed at which it ended.
    """
    for seed in range(first_seed, first_seed + seeds):
        try:
            run_seed(seed)
        except AssertionError as error:
            if said in str(error):
                if seed - first_seed >= _SEARCHED_LONG:
                    warnings.warn(f"begin at seed {seed}, not at {first_seed}", stacklevel=2)
                return True
    return False

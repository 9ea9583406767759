"""Estimates of the number of groups of a whole from a sample, as parts of what there is, beside known ones.

    python -m benchmarks.distinct_groups [--values 40000] [--seed 0] [--json]

`here` is what `rtolap cube size` goes by; `duj1` is Haas and Stokes' estimator, by which PostgreSQL's ANALYZE
goes; `gee` Charikar's. One draw of each kind of values, and one sample of each share.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rtolap.cubes.sizing.estimate import distinct_groups

Counts = NDArray[np.int64]
SHARES = (4, 8, 32)


def duj1(counts: Counts, sampled: int, all_events: float) -> float:
    once = np.count_nonzero(counts == 1)
    return float(sampled * len(counts) / (sampled - once + once * sampled / all_events))


def gee(counts: Counts, sampled: int, all_events: float) -> float:
    once = np.count_nonzero(counts == 1)
    return float((all_events / sampled) ** 0.5 * once + len(counts) - once)


ESTIMATORS: dict[str, Callable[[Counts, int, float], float]] = {
    "here": distinct_groups,
    "duj1": duj1,
    "gee": gee,
}


def populations(dice: np.random.Generator, values: int) -> dict[str, Counts]:
    few_or_many = np.where(
        dice.random(values) < 0.5, dice.integers(0, 50, values), dice.integers(100, 20_000, values)
    )
    return {
        "1 000 alike": dice.integers(0, 1_000, values),
        "5 000 alike": dice.integers(0, 5_000, values),
        "30 000 alike": dice.integers(0, 30_000, values),
        "a tail of exponent 1.3": np.minimum(dice.zipf(1.3, values), 50_000),
        "a tail of exponent 1.1": np.minimum(dice.zipf(1.1, values), 1_000_000),
        "half few, half many": few_or_many,
    }


def measure(values: int, seed: int) -> dict[str, dict[str, list[float]]]:
    dice = np.random.default_rng(seed)
    found: dict[str, dict[str, list[float]]] = {}
    for kind, population in populations(dice, values).items():
        there = len(np.unique(population))
        found[kind] = {name: [] for name in ESTIMATORS}
        for share in SHARES:
            sample = dice.choice(population, values // share, replace=False)
            _, counts = np.unique(sample, return_counts=True)
            for name, estimate in ESTIMATORS.items():
                found[kind][name].append(estimate(counts.astype(np.int64), values // share, values) / there)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--values", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.values, arguments.seed)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print("of 1 in", *SHARES)
    for kind, estimates in found.items():
        shown = (f"{name} {', '.join(f'{each:.2f}' for each in of_it)}" for name, of_it in estimates.items())
        print(f"{kind:<24} {'; '.join(shown)}")


if __name__ == "__main__":
    main()

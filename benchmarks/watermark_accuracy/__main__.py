"""Completeness and delay of windows by each rule, under faults.

    python -m benchmarks.watermark_accuracy [--hosts 6000] [--seeds 1 2 3 4 5] [--tick-ms 1000]
                                            [--scenario NAME] [--json]

Windows of five minutes, one ending every ten seconds of an hour; over all seeds. `missing` is the share of a
window's events that came in after it was closed, of the worst window and in the mean; `delay` from its end
until it was closed. `bound` is the largest share that the rule itself stated, by its estimates, when it
closed a window. `logged` is the worst missing share without what no rule can wait for: events that a host
whose clock was set back logged only after the window had closed.

Exits with 1 where the deficit rule breaks its promise: of events logged in time, no window misses more than
was stated when it closed (`TIMES_STATED` as much in a scenario that says so), and no window is left open.
Clocks that are set back may cost more, as what they log is late.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.watermark_accuracy.scenarios import PARTITIONS, SCENARIOS, TIMES_STATED
from benchmarks.watermark_accuracy.simulate import ESTIMATED, TICK_MS, Closed, simulate

BOUNDLESS = ("per partition, 30 s, idle 60 s", "global maximum less 30 s")


def misses(scenario: str, deficit: Closed, times: float = 1.0) -> list[str]:
    """Return where the deficit rule breaks its promise: more than so many times what it stated is missing."""
    if deficit.open or not deficit.shares:
        return [f"{scenario}: {deficit.open} windows did not close"]
    broken = [
        (share, bound_ppm / 1e6)
        for share, bound_ppm in zip(_logged(deficit), deficit.bounds_ppm, strict=True)
        if share > times * bound_ppm / 1e6
    ]
    if not broken:
        return []
    share, bound = max(broken)
    return [
        f"{scenario}: in {len(broken)} windows more is missing than stated, {share:.2e} against {bound:.2e}"
    ]


def unreported(closed: Closed, declared_ppm: int) -> list[tuple[int, float]]:
    """Return the windows that miss more than declared and are not reported: (end, missing share)."""
    reported = {breach.window_end_ms for breach in closed.breaches}
    return [
        (end_ms, share)
        for end_ms, share in zip(closed.ends_ms, closed.shares, strict=True)
        if share > declared_ppm / 1e6 and end_ms not in reported
    ]


def _logged(closed: Closed) -> list[float]:
    return [all_ - later for all_, later in zip(closed.shares, closed.unlogged_shares, strict=True)]


def summary(rule: str, runs: Sequence[Closed]) -> dict[str, Any]:
    """Summarise all seeds; of the median delay, the smallest and the largest of a seed."""
    left_open = sum(run.open for run in runs)
    shares = [share for run in runs for share in run.shares]
    if not shares:
        return {"open": left_open}
    medians_s = [float(np.median(run.delays_ms)) / 1000 for run in runs]
    delays_ms = [delay_ms for run in runs for delay_ms in run.delays_ms]
    return {
        "missing_logged_worst": float(f"{max(share for run in runs for share in _logged(run)):.3g}"),
        "missing_worst": float(f"{max(shares):.3g}"),
        "missing_mean": float(f"{np.mean(shares):.3g}"),
        "delay_median_s": [min(medians_s), max(medians_s)],
        "delay_p99_s": round(float(np.quantile(delays_ms, 0.99)) / 1000, 1),
        "bound_worst_ppm": None if rule in BOUNDLESS else max(max(run.bounds_ppm) for run in runs),
        "windows": len(shares),
        "open": left_open,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--tick-ms", type=int, default=TICK_MS, help="between two decisions")
    parser.add_argument("--scenario", choices=list(SCENARIOS), action="append")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.hosts < PARTITIONS:
        parser.error(f"--hosts {arguments.hosts}: expected at least {PARTITIONS}, one of each partition")
    results: dict[str, dict[str, dict[str, Any]]] = {}
    started_s = time.monotonic()
    missed: list[str] = []
    for name in arguments.scenario or SCENARIOS:
        runs = [
            simulate(SCENARIOS[name](seed, arguments.hosts), tick_ms=arguments.tick_ms)
            for seed in arguments.seeds
        ]
        for seed, run in zip(arguments.seeds, runs, strict=True):
            missed += misses(f"{name}, seed {seed}", run[ESTIMATED], TIMES_STATED.get(name, 1.0))
        results[name] = {rule: summary(rule, [run[rule] for run in runs]) for rule in runs[0]}
        print(f"\n{name}: {arguments.hosts} hosts, {PARTITIONS} partitions, seeds {arguments.seeds}")
        print(
            f"  {'rule':32} {'missing worst':>14} {'logged':>9} {'mean':>9} "
            f"{'delay median':>15} {'p99':>9}  bound  open"
        )
        for rule, closed in results[name].items():
            if "windows" not in closed:
                print(f"  {rule:32} no window closed")
                continue
            least_s, most_s = closed["delay_median_s"]
            medians = f"{least_s:.0f} to {most_s:.0f}"
            print(
                f"  {rule:32} {closed['missing_worst']:14.2e} {closed['missing_logged_worst']:9.1e} "
                f"{closed['missing_mean']:9.1e} "
                f"{medians:>13} s {closed['delay_p99_s']:7.1f} s "
                f"{closed['bound_worst_ppm'] or '-':>6} {closed['open']:5}",
                flush=True,
            )
    print(f"\n{time.monotonic() - started_s:.0f} s")
    if arguments.json:
        whole = {
            "hosts": arguments.hosts,
            "seeds": arguments.seeds,
            "partitions": PARTITIONS,
            "scenarios": results,
            "missed": missed,
        }
        print(json.dumps(whole))
    for reason in missed:
        print(reason, file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

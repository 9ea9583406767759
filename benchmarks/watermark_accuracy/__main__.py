"""Completeness and delay of windows by each rule, under faults.

    python -m benchmarks.watermark_accuracy [--hosts 6000] [--seed 1] [--scenario NAME] [--json]

Windows of five minutes, one ending every minute of an hour. `missing` is the share of a window's
events that came in after it was closed, of the worst window and in the mean; `delay` from its end until it
was closed. `bound` is the largest share that the rule itself stated, by its estimates, when it closed a
window.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from benchmarks.watermark_accuracy.scenarios import PARTITIONS, SCENARIOS
from benchmarks.watermark_accuracy.simulate import Closed, simulate

BOUNDLESS = ("per partition, 30 s, idle 60 s", "global maximum less 30 s")


def summary(rule: str, closed: Closed) -> dict[str, object]:
    if not closed.shares:
        return {"open": closed.open}
    return {
        "missing_worst": float(f"{max(closed.shares):.3g}"),
        "missing_mean": float(f"{np.mean(closed.shares):.3g}"),
        "delay_median_s": float(np.median(closed.delays_ms)) / 1000,
        "delay_p99_s": round(float(np.quantile(closed.delays_ms, 0.99)) / 1000, 1),
        "bound_worst_ppm": None if rule in BOUNDLESS else max(closed.bounds_ppm),
        "windows": len(closed.shares),
        "open": closed.open,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=list(SCENARIOS), action="append")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, dict[str, object]]] = {}
    started_s = time.monotonic()
    for name in arguments.scenario or SCENARIOS:
        fleet = SCENARIOS[name](arguments.seed, arguments.hosts)
        results[name] = {rule: summary(rule, closed) for rule, closed in simulate(fleet).items()}
        print(f"\n{name}: {arguments.hosts} hosts, {PARTITIONS} partitions")
        print(f"  {'rule':32} {'missing worst':>14} {'mean':>9} {'delay median':>13} {'p99':>9}  bound  open")
        for rule, one in results[name].items():
            if "windows" not in one:
                print(f"  {rule:32} no window closed")
                continue
            print(
                f"  {rule:32} {one['missing_worst']:14.2e} {one['missing_mean']:9.1e} "
                f"{one['delay_median_s']:11.1f} s {one['delay_p99_s']:7.1f} s "
                f"{one['bound_worst_ppm'] or '-':>6} {one['open']:5}",
                flush=True,
            )
    print(f"\n{time.monotonic() - started_s:.0f} s")
    if arguments.json:
        print(json.dumps({"hosts": arguments.hosts, "partitions": PARTITIONS, "scenarios": results}))


if __name__ == "__main__":
    main()

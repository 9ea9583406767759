"""The cost of the reports of ten thousand hosts for the server, and of a decision.

    python -m benchmarks.watermark_speed [--hosts 10000] [--partitions 64] [--seconds 10] [--growth]
                                         [--scenarios] [--json]

Simulated seconds: in each, every partition's report is applied and counted, rates are estimated again and
both rules decide. `one` has every host on one partition, as hosts that keep their order do; `all` every host
on every partition. Time is CPU time of this thread; the share is of one core. Memory is that of the columns.
`--growth` repeats it with ten times the hosts. `--scenarios` times the deficit rule's decision of every
second of the fleets of `benchmarks.watermark_accuracy` instead, each once, as the server would.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.rules import Decision, Deficit, HostPrecise
from rtolap.watermark.snapshot import SourceSnapshot
from rtolap.watermark.weights import HostRates

from benchmarks.watermark_accuracy.scenarios import SCENARIOS
from benchmarks.watermark_accuracy.simulate import WINDOW_MS, simulate

START_MS = 1_700_000_000_000


def measure(hosts: int, partitions: int, seconds: int, *, everywhere: bool) -> dict[str, float]:
    rng = np.random.default_rng(1)
    progress, rates = SourceProgress(hosts), HostRates(hosts)
    everybody = np.arange(hosts)
    members = [everybody if everywhere else everybody[at::partitions] for at in range(partitions)]
    listed, drained = np.ones(hosts, np.bool_), np.zeros(hosts, np.bool_)
    rules: dict[str, HostPrecise | Deficit] = {
        "host_precise": HostPrecise(1_000),
        "deficit": Deficit(100, 300_000),
    }
    applying_s: list[float] = []
    estimating_s: list[float] = []
    deciding_s: dict[str, list[float]] = {name: [] for name in rules}
    for second in range(seconds + 30):  # rates are known after a few samples
        now_ms = START_MS + second * 1_000
        reports = [(here, now_ms - rng.integers(300, 6_000, here.size)) for here in members]
        events = [rng.poisson(1.0, here.size) for here in members]
        started_s = time.thread_time()
        for partition, (here, latest_ms) in enumerate(reports):
            progress.apply(partition, 1, here, latest_ms, now_ms)
            rates.observe(here, events[partition], progress.latest_of(here))
        applied_s = time.thread_time()
        estimate = rates.estimate(now_ms)
        latest = progress.latest_ms()
        estimated_s = time.thread_time()
        snapshot = SourceSnapshot(
            now_ms,
            (),
            latest,
            estimate.events_per_ms,
            estimate.relative_error,
            listed,
            drained,
            estimate.dispersion,
        )
        if second < 30:
            continue
        applying_s.append(applied_s - started_s)
        estimating_s.append(estimated_s - applied_s)
        for name, rule in rules.items():
            for _ in range(20):
                began_s = time.thread_time()
                rule.decide(snapshot)
                deciding_s[name].append(time.thread_time() - began_s)
    second_s = median(applying_s) + median(estimating_s) + sum(median(each) for each in deciding_s.values())
    return {
        "hosts": hosts,
        "partitions": partitions,
        "cells": hosts * partitions if everywhere else hosts,
        "core_share": round(second_s, 4),
        "apply_ms": round(median(applying_s) * 1e3, 2),
        "estimate_ms": round(median(estimating_s) * 1e3, 2),
        "host_precise_us": round(median(deciding_s["host_precise"]) * 1e6, 1),
        "deficit_us": round(median(deciding_s["deficit"]) * 1e6, 1),
        "deficit_p10_us": round(float(np.quantile(deciding_s["deficit"], 0.1)) * 1e6, 1),
        "memory_mib": round((progress.nbytes + rates.nbytes) / 2**20, 1),
    }


class Timed:
    """The deficit rule; how long each of its decisions took."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self._rule = Deficit(100, WINDOW_MS)

    def decide(self, snapshot: SourceSnapshot) -> Decision:
        began_s = time.thread_time()
        decision = self._rule.decide(snapshot)
        self.took_s.append(time.thread_time() - began_s)
        return decision


def measure_scenario(name: str, hosts: int) -> dict[str, object]:
    rule = Timed()
    simulate(SCENARIOS[name](1, hosts), {"deficit": rule})
    took_us = np.array(rule.took_s) * 1e6
    median_us, p10_us, p99_us = (round(float(np.quantile(took_us, at)), 1) for at in (0.5, 0.1, 0.99))
    return {"scenario": name, "hosts": hosts, "median_us": median_us, "p10_us": p10_us, "p99_us": p99_us}


def scenarios(hosts: int) -> list[dict[str, object]]:
    figures = []
    for name in SCENARIOS:
        figure = measure_scenario(name, hosts)
        figures.append(figure)
        print(
            f"{name:24} {hosts} hosts; decide, deficit: median {figure['median_us']} µs, "
            f"p10 {figure['p10_us']} µs, p99 {figure['p99_us']} µs",
            flush=True,
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--scenarios", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = scenarios(arguments.hosts) if arguments.scenarios else costs(arguments)
    if arguments.json:
        print(json.dumps({"measurements": results}))


def costs(arguments: argparse.Namespace) -> list[dict[str, object]]:
    sizes = [arguments.hosts] + ([10 * arguments.hosts] if arguments.growth else [])
    results: list[dict[str, object]] = []
    for hosts in sizes:
        for everywhere in (False, True):
            one = measure(hosts, arguments.partitions, arguments.seconds, everywhere=everywhere)
            results.append({**one})
            print(
                f"{hosts} hosts on {'all' if everywhere else 'one'} of {arguments.partitions} partitions, "
                f"reported each second: {one['core_share']:.1%} of a core (apply {one['apply_ms']} ms, "
                f"estimate {one['estimate_ms']} ms); decide: host-precise {one['host_precise_us']} µs, "
                f"deficit {one['deficit_us']} µs (p10 {one['deficit_p10_us']} µs); {one['memory_mib']} MiB",
                flush=True,
            )
    return results


if __name__ == "__main__":
    main()

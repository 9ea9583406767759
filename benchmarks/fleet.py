"""Plans of large Kafka fleets: seconds of one core, memory, moved bytes beside the least possible.

    python -m benchmarks.fleet [--only PART… | --without PART…] [--rounds 1] [--json]
    parts: plans growth rates window catch-up

Fleets in columns, made up (tests/support/fleet): replicas of three each on five racks, two disks a broker of
two sizes, partitions over four orders of magnitude, disks 20 % to 98 % full:

    215 brokers, 2.8 million replicas        270 brokers, 1.3 million replicas

A process of its own reads the recorded fleet, plans, checks the plan as submitting does, and writes its JSON,
as `rtolap fleet plan` does; `plan` is the planner alone. Processor time is of all its threads, memory its
peak, the snapshot included. `disks` within 3 %, `drain` of a broker, `add` of five new ones, `leaders`,
`leaders-by-load`, and `factor`, a fourth replica for a tenth of the topics. `growth`: `disks` from 0.35
million replicas on.

`rates`: `disks` of the first fleet with rates in its snapshot and without, rounds in turn; and the time in
which what brokers tell of topics is divided over the partitions that they lead.

`window`: moves with a long tail on a cluster in memory (tests/support/fleet/long_tail), by the mover's
sliding window and by serial batches: seconds of that cluster until all but the stuck ones were done, and
until all were, medians of seeds. `catch-up`: `benchmarks.catch_up`, on a real broker, and on two of which one
is slow.

With `--json` the last line is one object. `ratios`, as far as their parts were measured:

    moved_to_least     bytes that `disks` moves on the first fleet, to the least that any plan moves (`ratio`)
    deviation          of used shares after `disks` on the first fleet, to that before
    growth             seconds of a replica in the largest fleet, to those in the smallest
    with_rates         seconds of `disks`, reading and writing included, with rates to without
    window_to_batches  until all of the long tail is done, by the window to by serial batches
    apart_to_together  p99 wait of live records read apart from a backlog, to read together; `…_slow_broker`
                       of the broker that is well, beside one that is slow
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.leaders_by_load import plan_leaders_by_load
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import plan_json
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.file import load, save
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.fleet.snapshot.rates import TopicRates, divided

from benchmarks import catch_up
from tests.support.fleet.long_tail import by_batches, by_window
from tests.support.fleet.random_fleets import huge_fleet

LARGE = (215, 2_800_000)
OTHER = (270, 1_300_000)
GROWTH = (350_000, 700_000, 1_400_000, 2_800_000)
NEW_BROKERS = 5
WINDOW_SEEDS = 9
BACKLOG, LIVE_S = 400_000, 5.0
ONE_BROKER, SLOW_BROKER = "one broker", "one of two slow"
DIVIDE = "rates"
PARTS = ("plans", "growth", "rates", "window", "catch-up")
PLANNERS: dict[str, Callable[[FleetSnapshot], Plan]] = {
    "disks": plan_disks,
    "drain": lambda fleet: plan_drain(fleet, [17]),
    "add": lambda fleet: plan_add(fleet, fleet.brokers.ids[-NEW_BROKERS:].tolist()),
    "leaders": plan_leaders,
    "leaders-by-load": plan_leaders_by_load,
    "factor": lambda fleet: plan_factor(fleet, fleet.topics.names[::10], 4),
}


def record(path: Path, brokers: int, replicas: int, *, empty: int = 0, rates: bool = True) -> None:
    """Record a fleet. `empty` brokers hold nothing yet. `rates` says whether the snapshot knows them."""
    fleet = huge_fleet(brokers=brokers, replicas=replicas, empty_brokers=empty)
    if not rates:
        unknown = np.full(len(fleet.partitions), np.nan)
        partitions = replace(fleet.partitions, bytes_in_per_s=unknown, bytes_out_per_s=unknown)
        fleet = replace(fleet, partitions=partitions)
    save(fleet, path)


def plan_recorded(path: Path, kind: str) -> dict[str, Any]:
    """Run in a process of its own."""
    started_s = time.process_time()
    fleet = load(path)
    loaded_s = time.process_time()
    plan = PLANNERS[kind](fleet)
    planned_s = time.process_time()
    check_applies(plan, fleet)
    data = plan_json(plan)
    done_s = time.process_time()
    before = plan.disks.utilisation(plan.disks.before_bytes)
    after = plan.disks.utilisation(plan.disks.after_bytes)
    return {
        "load_s": round(loaded_s - started_s, 2),
        "plan_s": round(planned_s - loaded_s, 2),
        "write_s": round(done_s - planned_s, 2),
        "all_s": round(done_s - started_s, 2),
        "peak_mb": round(_peak_kb() / 1e3),
        "plan_mb": round(len(data) / 1e6, 1),
        "partitions": len(plan),
        "moves": len(plan.moves),
        "moved_tb": round(plan.moved_bytes / 1e12, 3),
        "to_least": round(plan.moved_bytes / max(plan.bounds.before_bytes, 1), 4),
        "expected_h": round((plan.copy_time.expected_s or 0) / 3600, 2),
        "before": _spread(before),
        "after": _spread(after),
    }


def divide_recorded(path: Path) -> dict[str, Any]:
    """Run in a process of its own. Brokers tell the sums of what the snapshot says."""
    fleet = load(path)
    partitions, topics = fleet.partitions, len(fleet.topics)
    keys, rows = np.unique(
        partitions.leaders.astype(np.int64) * topics + partitions.topics, return_inverse=True
    )
    rates = TopicRates(
        fleet.brokers.ids[keys // topics],
        tuple(fleet.topics.names[topic] for topic in (keys % topics).tolist()),
        np.bincount(rows, partitions.bytes_in_per_s).astype(np.float64),
        np.bincount(rows, partitions.bytes_out_per_s).astype(np.float64),
        frozenset(fleet.brokers.ids.tolist()),
        {},
    )
    before_kb, started_s = _peak_kb(), time.process_time()
    into, _ = divided(rates, fleet.brokers, fleet.topics, partitions, fleet.replicas)
    done_s = time.process_time()
    assert np.isclose(into.sum(), partitions.bytes_in_per_s.sum())
    return {
        "told": len(keys),
        "partitions": len(partitions),
        "divide_s": round(done_s - started_s, 3),
        "grown_mb": round((_peak_kb() - before_kb) / 1e3),
        "all_s": done_s - started_s,
    }


def _peak_kb() -> int:
    """Return the peak memory of this program alone: what the system counts for a process begins with that of
    its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _spread(shares: np.ndarray) -> dict[str, float]:
    figures = {"least": shares.min(), "most": shares.max(), "deviation": shares.std()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def measure(path: Path, kind: str, rounds: int) -> dict[str, Any]:
    """Return the round that took least processor time."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--recorded", str(path), "--kind", kind]
    found = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(rounds)
    ]
    best: dict[str, Any] = min(found, key=lambda figures: figures["all_s"])
    return best


def measure_rates(folder: Path, rounds: int) -> dict[str, Any]:
    """Run rounds in turn, and return the best of each."""
    runs: dict[str, list[dict[str, Any]]] = {"with": [], "without": []}
    path = folder / "fleet"
    for _ in range(rounds):
        for title, found in runs.items():
            record(path, *LARGE, rates=title == "with")
            found.append(measure(path, "disks", 1))
    best = {title: min(found, key=lambda figures: figures["all_s"]) for title, found in runs.items()}
    record(path, *LARGE)
    figures = {**measure(path, DIVIDE, rounds), **best}
    figures["ratio"] = round(best["with"]["all_s"] / best["without"]["all_s"], 3)
    print(
        f"{'rates':25} {figures['divide_s']:.2f} s to divide {figures['told']} of topics over"
        f" {figures['partitions']} partitions; disks {best['with']['all_s']:.1f} s with rates,"
        f" {best['without']['all_s']:.1f} s without",
        flush=True,
    )
    return figures


def window_against_batches() -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": WINDOW_SEEDS}
    for way, carried_out in (("window", by_window), ("batches", by_batches)):
        runs = [carried_out(seed) for seed in range(WINDOW_SEEDS)]
        found[way] = {
            "others_s": statistics.median(run.others_s for run in runs),
            "all_s": statistics.median(run.all_s for run in runs),
        }
        print(f"{way:25} {found[way]['others_s']:6.0f} s but for the stuck, {found[way]['all_s']:6.0f} s")
    found["ratio"] = found["window"]["all_s"] / found["batches"]["all_s"]
    return found


def live_beside_backlog(rounds: int) -> dict[str, Any]:
    found = {}
    for title, slow_broker in ((ONE_BROKER, False), (SLOW_BROKER, True)):
        figures: dict[str, Any] = catch_up.run(BACKLOG, LIVE_S, rounds, slow_broker=slow_broker)
        found[title] = figures
        waits = ", ".join(f"{figures[way]['well_p99_ms']:.0f} ms {way}" for way in ("together", "apart"))
        print(f"{'live p99, ' + title:25} {waits}", flush=True)
    return found


def tell(title: str, kind: str, figures: dict[str, Any]) -> None:
    before, after = figures["before"], figures["after"]
    print(
        f"{title:16} {kind:16} {figures['plan_s']:6.1f} s of {figures['all_s']:5.1f} s"
        f"  {figures['peak_mb']:5} MB  {figures['moves']:6} moves  {figures['moved_tb']:6.2f} TB"
        f"  {figures['to_least']:.4f} of the least"
        f"  {before['least']:.1%}–{before['most']:.1%} → {after['least']:.1%}–{after['most']:.1%}",
        flush=True,
    )


def measure_plans(folder: Path, rounds: int) -> dict[str, Any]:
    path = folder / "fleet"
    figures: dict[str, Any] = {}
    for brokers, replicas in (LARGE, OTHER):
        title = f"{brokers} / {replicas / 1e6:g} M"
        figures[title] = {}
        for kind in PLANNERS:
            record(path, brokers, replicas, empty=NEW_BROKERS if kind == "add" else 0)
            figures[title][kind] = measure(path, kind, rounds)
            tell(title, kind, figures[title][kind])
    return figures


def measure_growth(folder: Path, rounds: int) -> dict[str, Any]:
    path = folder / "fleet"
    figures: dict[str, Any] = {}
    for replicas in GROWTH:
        record(path, LARGE[0], replicas)
        figures[str(replicas)] = measure(path, "disks", rounds)
        tell(f"{LARGE[0]} / {replicas / 1e6:g} M", "disks", figures[str(replicas)])
    return figures


def ratios_of(figures: dict[str, Any]) -> dict[str, float]:
    """Return the ratios of the parts that were measured, by the names in this module's description."""
    found: dict[str, float] = {}
    if "plans" in figures:
        disks = figures["plans"][f"{LARGE[0]} / {LARGE[1] / 1e6:g} M"]["disks"]
        found["moved_to_least"] = disks["to_least"]
        found["deviation"] = disks["after"]["deviation"] / disks["before"]["deviation"]
    if "growth" in figures:
        smallest, largest = (figures["growth"][str(of)]["plan_s"] / of for of in (GROWTH[0], GROWTH[-1]))
        found["growth"] = largest / smallest
    if "rates" in figures:
        found["with_rates"] = figures["rates"]["ratio"]
    if "window" in figures:
        found["window_to_batches"] = figures["window"]["ratio"]
    for name, title in (("apart_to_together", ONE_BROKER), ("apart_to_together_slow_broker", SLOW_BROKER)):
        if "catch_up" in figures:
            found[name] = figures["catch_up"][title]["ratio"]
    return {name: round(ratio, 4) for name, ratio in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    chosen.add_argument("--without", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recorded", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=(*PLANNERS, DIVIDE), default="disks", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.recorded is not None:
        recorded, kind = arguments.recorded, arguments.kind
        print(json.dumps(divide_recorded(recorded) if kind == DIVIDE else plan_recorded(recorded, kind)))
        return
    rounds = arguments.rounds
    parts = [part for part in arguments.only if part not in arguments.without]
    figures: dict[str, Any] = {"rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        if "plans" in parts:
            figures["plans"] = measure_plans(Path(folder), rounds)
        if "growth" in parts:
            figures["growth"] = measure_growth(Path(folder), rounds)
        if "rates" in parts:
            figures["rates"] = measure_rates(Path(folder), rounds)
    if "window" in parts:
        figures["window"] = window_against_batches()
    if "catch-up" in parts:
        figures["catch_up"] = live_beside_backlog(rounds)
    figures["ratios"] = ratios_of(figures)
    if "plans" in parts:
        figures["ratio"] = figures["ratios"]["moved_to_least"]
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Plans of large Kafka fleets: seconds of one core, memory, moved bytes beside the least possible.

    python -m benchmarks.fleet [--only plans growth window catch-up] [--rounds 1] [--json]

Fleets in columns, made up (tests/support/fleet): replicas of three each on five racks, two disks a broker of
two sizes, partitions over four orders of magnitude, disks 20 % to 98 % full:

    215 brokers, 2.8 million replicas        270 brokers, 1.3 million replicas

A process of its own reads the recorded fleet, plans, checks the plan as submitting does, and writes its JSON,
as `rtolap fleet plan` does; `plan` is the planner alone. Processor time is of all its threads, memory its
peak, the snapshot included. `disks` within 3 %, `drain` of a broker, `add` of five new ones, `leaders`, and
`factor`, a fourth replica for a tenth of the topics. `growth`: `disks` from 0.35 million replicas on.

`window`: moves with a long tail on a cluster in memory (tests/support/fleet/long_tail), by the mover's
sliding window and by serial batches: seconds of that cluster until all but the stuck ones were done, and
until all were, medians of seeds. `catch-up`: `benchmarks.catch_up`, on a real broker, and on two of which one
is slow.

With `--json` the last line is one object. `ratio`: bytes that `disks` moves on the first fleet, to the least
that any plan moves.
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
from pathlib import Path
from typing import Any

import numpy as np
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.applies import check_applies
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import plan_json
from rtolap.fleet.snapshot.file import load, save
from rtolap.fleet.snapshot.model import Snapshot

from benchmarks import catch_up
from tests.support.fleet.long_tail import by_batches, by_window
from tests.support.fleet.random_fleets import huge_fleet

LARGE = (215, 2_800_000)
OTHER = (270, 1_300_000)
GROWTH = (350_000, 700_000, 1_400_000, 2_800_000)
NEW_BROKERS = 5
WINDOW_SEEDS = 9
BACKLOG, LIVE_S = 400_000, 5.0
PARTS = ("plans", "growth", "window", "catch-up")
PLANNERS: dict[str, Callable[[Snapshot], Plan]] = {
    "disks": plan_disks,
    "drain": lambda fleet: plan_drain(fleet, [17]),
    "add": lambda fleet: plan_add(fleet, fleet.brokers.ids[-NEW_BROKERS:].tolist()),
    "leaders": plan_leaders,
    "factor": lambda fleet: plan_factor(fleet, fleet.topics.names[::10], 4),
}


def record(path: Path, brokers: int, replicas: int, *, empty: int = 0) -> None:
    """empty: brokers that hold nothing yet."""
    save(huge_fleet(brokers=brokers, replicas=replicas, empty_brokers=empty), path)


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
        "expected_h": round(plan.expected_s / 3600, 2),
        "before": _spread(before),
        "after": _spread(after),
    }


def _peak_kb() -> int:
    """Of this program alone: what the system counts for a process begins with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _spread(shares: np.ndarray) -> dict[str, float]:
    figures = {"least": shares.min(), "most": shares.max(), "deviation": shares.std()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def measure(path: Path, kind: str, rounds: int) -> dict[str, Any]:
    """The round that took least processor time."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--recorded", str(path), "--kind", kind]
    found = [
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(rounds)
    ]
    best: dict[str, Any] = min(found, key=lambda figures: figures["all_s"])
    return best


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
    for title, slow_broker in (("one broker", False), ("one of two slow", True)):
        figures: dict[str, Any] = catch_up.run(BACKLOG, LIVE_S, rounds, slow_broker=slow_broker)
        found[title] = figures
        waits = ", ".join(f"{figures[way]['well_p99_ms']:.0f} ms {way}" for way in ("together", "apart"))
        print(f"{'live p99, ' + title:25} {waits}", flush=True)
    return found


def tell(title: str, kind: str, figures: dict[str, Any]) -> None:
    before, after = figures["before"], figures["after"]
    print(
        f"{title:16} {kind:8} {figures['plan_s']:6.1f} s of {figures['all_s']:5.1f} s"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recorded", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=tuple(PLANNERS), default="disks", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.recorded is not None:
        print(json.dumps(plan_recorded(arguments.recorded, arguments.kind)))
        return
    rounds = arguments.rounds
    figures: dict[str, Any] = {"rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        if "plans" in arguments.only:
            figures |= measure_plans(Path(folder), rounds)
            figures["ratio"] = figures[f"{LARGE[0]} / {LARGE[1] / 1e6:g} M"]["disks"]["to_least"]
        if "growth" in arguments.only:
            figures["growth"] = measure_growth(Path(folder), rounds)
    if "window" in arguments.only:
        figures["window"] = window_against_batches()
    if "catch-up" in arguments.only:
        figures["catch_up"] = live_beside_backlog(rounds)
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()

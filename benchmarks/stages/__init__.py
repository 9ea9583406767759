"""The stages of an event's way into an answer, put together out of what `noted` wrote in a receiver.

An event waits in Kafka until a step of the receiver begins that reads it. The step polls, decodes and groups
its batch and swaps the state. A statement is asked and its answer arrives. The times of these stages add up
to the latency. A statement may be asked before the swap and see it all the same: one stage may be negative.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.hooks import Hook
from benchmarks.stages.noted import CALL, STEP

NAMES = (
    "made, until the step that reads it begins",
    "poll: what was fetched becomes columns",
    "decode, group, swap",
    "until the statement that sees it is asked",
    "statement: asked, until its answer arrives",
)
SLOWEST_SHARE = 0.02
_MS = 1e6

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def hook(file: Path) -> Hook:
    """Return the hook that has the receiver note its steps and calls in this file."""
    return Hook("benchmarks.stages.noted", str(file), ("receiver",))


@dataclass(frozen=True)
class Steps:
    """The steps of a receiver that took in records, in order, and its calls; times in ns.

    Attributes:
        positions: of each partition, behind each step.
        calls: begin, end and processor time of each.
    """

    begun: Int64s
    polled: Int64s
    swapped: Int64s
    ended: Int64s
    records: Int64s
    used: Int64s
    positions: Int64s
    calls: Int64s


def read(file: Path, partitions: int) -> Steps:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = [line for line in lines if line[0] == STEP]
    columns = np.array([line[1:8] for line in steps], np.int64).T
    begun, _, polled, records, swapped, ended, used = columns
    positions = np.array([[line[8].get(str(p), 0) for p in range(partitions)] for line in steps], np.int64)
    calls = np.array([line[1:] for line in lines if line[0] == CALL], np.int64)
    return Steps(begun, polled, swapped, ended, records, used, positions, calls)


def stages_ms(
    steps: Steps,
    made_ns: Int64s,
    per_slice: int,
    asked_ns: Int64s,
    arrived_ns: Int64s,
    answered: Int64s,
    first_slice: int,
    begin: int,
) -> Floats:
    """Return the stages of the last event of each slice and partition from `first_slice` on: a row an event,
    a column for each of NAMES. `answered`: the positions of each answer; `begin`: the first offset."""
    parts = []
    for partition in range(made_ns.shape[1]):
        made = made_ns[first_slice:, partition]
        offsets = begin + (np.arange(first_slice, len(made_ns)) + 1) * per_slice - 1
        step = np.searchsorted(steps.positions[:, partition], offsets, side="right")
        answer = np.searchsorted(answered[:, partition], offsets, side="right")
        noted = (step < len(steps.begun)) & (answer < len(asked_ns))  # the last lines go with the process
        step, answer, made = step[noted], answer[noted], made[noted]
        ends = np.stack(
            (
                made,
                steps.begun[step],
                steps.polled[step],
                steps.swapped[step],
                asked_ns[answer],
                arrived_ns[answer],
            )
        )
        parts.append(np.diff(ends, axis=0).T / _MS)
    return np.concatenate(parts)


def report(steps: Steps, stages: Floats, from_ns: int, until_ns: int) -> None:
    """Print what the stages took, of all events and of the slowest, and the steps and calls meanwhile."""
    whole = stages.sum(axis=1)
    slowest = stages[whole >= np.percentile(whole, 100 * (1 - SLOWEST_SHARE))]
    print(f"  stages in ms: mean, p50, p99; mean of the slowest {SLOWEST_SHARE:.0%}")
    for place, name in enumerate(NAMES):
        times = stages[:, place]
        p50, p99 = np.percentile(times, (50, 99))
        print(f"    {name:44} {times.mean():7.1f} {p50:7.1f} {p99:7.1f}   {slowest[:, place].mean():7.1f}")
    p50, p99 = np.percentile(whole, (50, 99))
    print(f"    {'whole':44} {whole.mean():7.1f} {p50:7.1f} {p99:7.1f}   {slowest.sum(axis=1).mean():7.1f}")
    inside = (steps.begun >= from_ns) & (steps.begun <= until_ns)
    seconds = (until_ns - from_ns) / 1e9
    took, used = (steps.ended - steps.begun)[inside] / _MS, steps.used[inside] / _MS
    print(
        f"  {inside.sum() / seconds:.0f} steps a second of {steps.records[inside].mean():.0f} records: "
        f"p50 {np.median(took):.1f}, p99 {np.percentile(took, 99):.1f} ms, "
        f"{np.median(used):.1f} ms of processor time"
    )
    calls = steps.calls[(steps.calls[:, 0] >= from_ns) & (steps.calls[:, 0] <= until_ns)]
    took, used = (calls[:, 1] - calls[:, 0]) / _MS, calls[:, 2] / _MS
    print(
        f"  {len(calls) / seconds:.0f} answers a second in the receiver: p50 {np.median(took):.1f}, "
        f"p99 {np.percentile(took, 99):.1f} ms, {np.median(used):.1f} ms of processor time"
    )

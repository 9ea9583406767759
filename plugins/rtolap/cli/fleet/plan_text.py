"""Plans in words and tables, for people and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from rtolap.cli.output import console, print_table
from rtolap.fleet.planning.plan import Disks, Plan
from rtolap.fleet.planning.plan_file import plan_digest
from rtolap.fleet.snapshot.model import UNKNOWN, Floats, Int64s
from rtolap.model.quantities import size_text, span_text

_SHOWN_DISKS = 20


def time_text(seconds: int | None) -> str:
    """Return a time as text. `seconds` is None where there is no end."""
    if seconds is None:
        return "without end"
    return span_text(seconds * 1000)


def summary(plan: Plan) -> dict[str, Any]:
    """Return what is decided, in figures."""
    moves, time = plan.moves, plan.copy_time
    return {
        "kind": plan.kind,
        "arguments": dict(plan.arguments),
        "cluster_id": plan.cluster_id,
        "digest": plan_digest(plan),
        "snapshot_digest": plan.snapshot_digest,
        "why": plan.why,
        "left_out": plan.left_out,
        "stages": plan.stage_count,
        "partitions": len(plan),
        "moves": len(moves),
        "elections": len(plan.elections),
        "between_brokers_bytes": plan.between_brokers_bytes,
        "between_disks_bytes": plan.between_disks_bytes,
        "least_before_bytes": plan.bounds.before_bytes,
        "least_after_bytes": plan.bounds.after_bytes,
        "throttle_bytes_per_s": plan.throttle_bytes_per_s,
        "expected_s": time.expected_s,
        "written_bytes_per_s": time.written_bytes_per_s,
        "written_unknown": time.unknown,
        "outpaced": len(time.outpaced),
        "utilisation_before": _spread(plan.disks.utilisation(plan.disks.before_bytes)),
        "utilisation_after": _spread(plan.disks.utilisation(plan.disks.after_bytes)),
    }


def _spread(shares: Floats) -> dict[str, float] | None:
    known = shares[~np.isnan(shares)]
    if not known.size:
        return None
    figures = {"least": known.min(), "mean": known.mean(), "most": known.max(), "deviation": known.std()}
    return {name: round(float(value), 4) for name, value in figures.items()}


def print_plan(plan: Plan, *, moves: int) -> None:
    """Print a plan. `moves` is the number of moves to list."""
    arguments = ", ".join(f"{name} {value}" for name, value in plan.arguments)
    console.print(
        f"[bold]plan {plan.kind}[/bold]{' ' if arguments else ''}{arguments}  of cluster {plan.cluster_id}",
        soft_wrap=True,
    )
    for sentence in plan.why:
        console.print(f"  {sentence}", soft_wrap=True, markup=False)
    figures, time = summary(plan), plan.copy_time
    spans = [
        f"{size_text(plan.between_brokers_bytes)} between brokers",
        f"{size_text(plan.between_disks_bytes)} between disks of a broker",
    ]
    rows = [
        ("partitions", f"{len(plan)}"),
        ("moves", f"{len(plan.moves)}: {', '.join(spans)}"),
        (
            "at least",
            f"{size_text(plan.bounds.before_bytes)}; afterwards {size_text(plan.bounds.after_bytes)}",
        ),
        ("elections", f"{len(plan.elections)}"),
        (
            "time",
            f"{time_text(time.expected_s)} at {size_text(plan.throttle_bytes_per_s)} a second and broker",
        ),
        ("written meanwhile", _written(plan)),
        *(
            (f"disks {when}", _range(figures[f"utilisation_{when}"]))
            for when in ("before", "after")
            if figures[f"utilisation_{when}"]
        ),
        ("digest", str(figures["digest"])),
    ]
    print_table(("figure", "value"), rows)
    _print_disks(plan.disks)
    listed = min(moves, len(plan.moves))
    if listed:
        order = np.argsort(-plan.moves.size_bytes, kind="stable")[:listed]
        print_table(MOVE_COLUMNS, move_rows(plan, order))
        if listed < len(plan.moves):
            console.print(f"  … and {len(plan.moves) - listed} smaller moves")


def _written(plan: Plan) -> str:
    time = plan.copy_time
    told = f"{size_text(time.written_bytes_per_s)} a second to the partitions that are copied"
    return f"{told}; not known of {time.unknown}" if time.unknown else told


def _range(spread: dict[str, float]) -> str:
    return (
        f"{spread['least']:.1%} to {spread['most']:.1%} full, mean {spread['mean']:.1%},"
        f" deviation {spread['deviation']:.1%}"
    )


def _print_disks(disks: Disks) -> None:
    """Print the disks that change most."""
    change = np.abs(disks.after_bytes - disks.before_bytes)
    order = np.argsort(-change, kind="stable")
    order = np.sort(order[change[order] > 0][:_SHOWN_DISKS])
    if not order.size:
        return
    before, after = disks.utilisation(disks.before_bytes), disks.utilisation(disks.after_bytes)
    print_table(
        ("broker", "log_dir", "before", "after", "comes or goes"),
        [
            (
                int(disks.brokers[row]),
                disks.paths[row],
                f"{before[row]:.1%}",
                f"{after[row]:.1%}",
                _signed(int(disks.after_bytes[row] - disks.before_bytes[row])),
            )
            for row in order.tolist()
        ],
    )
    if order.size < int((change > 0).sum()):
        console.print(f"  … and {int((change > 0).sum()) - order.size} disks that change less")


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else "") + size_text(size_bytes)


MOVE_COLUMNS = ("topic", "partition", "from", "to", "size", "written_per_s")


def move_rows(plan: Plan, rows: Int64s) -> list[tuple[str, int, str, str, str, str]]:
    """Return the rows of a table of moves. `written_per_s` is what producers write to the partition."""
    moves = plan.moves
    return [
        (
            plan.topics[plan.partition_topics[moves.partitions[row]]],
            int(plan.partition_numbers[moves.partitions[row]]),
            _place(plan, int(moves.from_brokers[row]), int(moves.from_log_dirs[row])),
            _place(plan, int(moves.to_brokers[row]), int(moves.to_log_dirs[row])),
            size_text(int(moves.size_bytes[row])),
            _rate_text(float(plan.bytes_in_per_s[moves.partitions[row]])),
        )
        for row in rows.tolist()
    ]


def _rate_text(bytes_per_s: float) -> str:
    return "not known" if np.isnan(bytes_per_s) else size_text(round(bytes_per_s))


def _place(plan: Plan, broker: int, log_dir: int) -> str:
    if broker == UNKNOWN:
        return "new"
    return f"{broker}" if log_dir == UNKNOWN else f"{broker}:{plan.disks.paths[log_dir]}"

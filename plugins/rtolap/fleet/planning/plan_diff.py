"""The difference between two plans, by partition."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.fleet.planning.plan import Plan


@dataclass(frozen=True)
class PlanDifference:
    """The difference of two plans. Partitions are named topic-number, in order.

    Attributes:
        same: Number of partitions that get the same replicas by both.
        elsewhere: Partitions that both change, but to other brokers, directories or another order.
    """

    same: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    elsewhere: tuple[str, ...]


def difference(first: Plan, second: Plan) -> PlanDifference:
    one, other = _targets(first), _targets(second)
    both = one.keys() & other.keys()
    return PlanDifference(
        sum(one[name] == other[name] for name in both),
        _names(one.keys() - both),
        _names(other.keys() - both),
        _names({name for name in both if one[name] != other[name]}),
    )


def _names(partitions: set[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(f"{topic}-{number}" for topic, number in sorted(partitions))


def _targets(plan: Plan) -> dict[tuple[str, int], tuple[tuple[int, str], ...]]:
    paths = (*plan.disks.paths, "")
    bounds = plan.after.first.tolist()
    brokers, dirs = plan.after.brokers.tolist(), plan.after.log_dirs.tolist()
    return {
        (plan.topics[topic], number): tuple(
            (brokers[at], paths[dirs[at]]) for at in range(bounds[row], bounds[row + 1])
        )
        for row, (topic, number) in enumerate(
            zip(plan.partition_topics.tolist(), plan.partition_numbers.tolist(), strict=True)
        )
    }

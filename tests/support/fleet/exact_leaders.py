"""How evenly partitions can be led when only the order of replicas may change, by plain matching.

For a bound on how many partitions a broker leads, each partition looks for a replica whose broker has room,
and pushes others on where none has (Kuhn). The smallest bound for which all find one is the answer.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, ReplicaState


def fewest_most_leading(snapshot: FleetSnapshot) -> int:
    """Return the optimum among brokers that serve. Partitions of which no replica can lead, and those under a
    running move, keep the preferred replica that they have."""
    replicas, first = snapshot.replicas, snapshot.partitions.first_replicas.tolist()
    alive = {row for row, state in enumerate(snapshot.brokers.states) if state == BrokerState.ALIVE}
    kept: Counter[int] = Counter()
    choices: list[list[int]] = []
    for begin, end in pairwise(first):
        rows = range(begin, end)
        running = any(
            replicas.states[row] != ReplicaState.STAYING or replicas.future_log_dirs[row] != UNKNOWN
            for row in rows
        )
        able = [
            int(replicas.brokers[r]) for r in rows if replicas.in_sync[r] and replicas.brokers[r] in alive
        ]
        if able and not running:
            choices.append(able)
        elif rows:
            kept[int(replicas.brokers[begin])] += 1
    most = max((kept[broker] for broker in alive), default=0)
    while not _all_find(choices, kept, most):
        most += 1
    return most


def _all_find(choices: list[list[int]], kept: Counter[int], most: int) -> bool:
    led: dict[int, list[int]] = {}

    def find(partition: int, tried: set[int]) -> bool:
        for broker in choices[partition]:
            if broker in tried:
                continue
            tried.add(broker)
            here = led.setdefault(broker, [])
            if len(here) + kept[broker] < most:
                here.append(partition)
                return True
            for at, other in enumerate(here):
                if find(other, tried):
                    here[at] = partition
                    return True
        return False

    return all(find(partition, set()) for partition in range(len(choices)))

"""Which process is to own which share. Pure.

The shares are spread evenly: the numbers of two processes' shares differ by one at most. Of all even spreads
one with the fewest moves is chosen:

    1. each process keeps its shares up to its quota: the even part, and one more for those who have most
    2. what is left over goes to the processes below their quota, the emptiest first
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def assign(assigned: Mapping[int, int | None], processes: Iterable[int]) -> dict[int, int | None]:
    """Return the process of each share. `assigned` is what is assigned now; `processes` are those that may
    have shares. Without a process, nothing changes."""
    members = sorted(set(processes))
    if not members:
        return dict(assigned)
    own: dict[int, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for share, process in sorted(assigned.items()):
        own.get(process, free).append(share) if process is not None else free.append(share)
    even, more = divmod(len(assigned), len(members))
    fullest = sorted(members, key=lambda member: (-len(own[member]), member))
    quota = {member: even + (place < more) for place, member in enumerate(fullest)}
    for member in members:
        free += own[member][quota[member] :]
        del own[member][quota[member] :]
    for share in sorted(free):
        emptiest = min(
            (member for member in members if len(own[member]) < quota[member]),
            key=lambda member: (len(own[member]), member),
        )
        own[emptiest].append(share)
    return {share: member for member, shares in own.items() for share in shares}


def staying(living: Iterable[int], wanted: int) -> list[int]:
    """Return the living processes that stay where `wanted` are enough: those with the lowest numbers."""
    return sorted(living)[:wanted]

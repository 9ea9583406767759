"""Places of receivers, which fail as a whole: machines and racks. Pure functions of records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from rtolap.base.errors import Refused
from rtolap.metadata.records import ReceiverRecord

PlacementPolicy = Literal["off", "warn", "strict", "strict_racks"]


class SharedPlace(msgspec.Struct, frozen=True):
    """Receivers of one replica set that one failure takes together."""

    kind: Literal["machine", "rack"]
    place: str
    receivers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.receivers)} share {self.kind} {self.place}"


def shared_places(
    receivers: Mapping[str, ReceiverRecord], living: Collection[str]
) -> tuple[SharedPlace, ...]:
    """Return the places that receivers of a replica set share, machines first.

    A machine: two of the living receivers run on it. A rack: all registered receivers, two or more, stand in
    it. Those that have stopped count for racks: a rack that fails must not make the other one the only one.
    Receivers that declare no place, as those of older versions, share none.
    """
    by_machine: dict[str, list[str]] = {}
    for name, record in sorted(receivers.items()):
        if record.machine and name in living:
            by_machine.setdefault(record.machine, []).append(name)
    shared = [
        SharedPlace("machine", machine, tuple(names))
        for machine, names in sorted(by_machine.items())
        if len(names) > 1
    ]
    rack = home_rack(receivers.values())
    if rack and len(receivers) > 1:
        shared.append(SharedPlace("rack", rack, tuple(sorted(receivers))))
    return tuple(shared)


def home_rack(receivers: Iterable[ReceiverRecord]) -> str | None:
    """Return the rack with which all of these receivers fail; "" where it is not known, None for no rack."""
    racks = {record.rack for record in receivers}
    if len(racks) == 1:
        return racks.pop()
    return None if racks and "" not in racks else ""


def refused_places(shared: Iterable[SharedPlace], policy: PlacementPolicy) -> tuple[SharedPlace, ...]:
    """Return those that the policy does not let receivers share."""
    kinds = {"strict": ("machine",), "strict_racks": ("machine", "rack")}.get(policy, ())
    return tuple(one for one in shared if one.kind in kinds)


def refuse_shared(
    replica_set: str,
    receivers: Mapping[str, ReceiverRecord],
    living: Collection[str],
    policy: PlacementPolicy,
) -> None:
    """Raise Refused where receivers of a replica set share a place that the policy forbids."""
    refused = refused_places(shared_places(receivers, living), policy)
    if refused:
        raise Refused(
            f"receivers of replica set {replica_set} stand in one place",
            expected=f"receivers apart from each other, as RTOLAP_PLACEMENT={policy} asks",
            found="; ".join(map(str, refused)),
            action="start one of them elsewhere, or in another replica set; one that was killed counts until "
            "its session expires, `rtolap receivers remove` removes one that is gone",
        )

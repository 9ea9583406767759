"""The plan of even disks, which brings every disk to within a tolerance of the fleet's mean, with few bytes.

1. The band around the mean, by capacity; nothing moves where every disk is within it.
2. Two levels: full disks are skimmed down to the one, the idlest are filled up to the other, by just the
bytes that the band demands (`levels`, `transfers`).
3. Where racks or placement rules do not let enough pass from one group of disks to another, each is evened
   out within, about its own mean.
4. What is left over because replicas are whole: for a disk that is still outside, the smallest replica that
   brings it, or another, into the band.
5. A fleet small enough for that is improved replica by replica (`improve`), where what leaves a disk is room.
6. The moves get an order in which every disk has room at every moment (`stages`).
7. Where disks are hardly more even in the end, nothing moves. Otherwise the fleet as it is then is planned
   again, until nothing moves: so a second plan is empty.

Disks that take no replicas stay as they are, and count for nothing. Replicas that hold nothing stay: their
move would bring nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtolap.base.errors import DefinitionError
from rtolap.fleet.planning.improve import RUNS, improve
from rtolap.fleet.planning.levels import Band, band_of, levels
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.planned_state import state_of
from rtolap.fleet.planning.stages import PlanStage, in_stages
from rtolap.fleet.planning.transfers import Leaving, Transfers
from rtolap.fleet.snapshot.model import FleetSnapshot, Floats, Int32s, Int64s

TOLERANCE = 0.03
_ROUNDS_MAX = 8
_GAIN_MIN = 0.02  # of the squares of what is outside: for less nothing moves


def plan_disks(
    snapshot: FleetSnapshot,
    *,
    tolerance: float = TOLERANCE,
    limits: Limits = Limits(),
    runs: int = RUNS,
) -> Plan:
    """Plan even disks. `tolerance` is a share of a disk; `runs` is how often at most a small fleet is
    searched. Raises IncompleteSnapshot, and DefinitionError for no tolerance."""
    if not 0 < tolerance < 1:
        raise DefinitionError(
            "a tolerance is a share of a disk", expected="above 0, below 1", found=tolerance
        )
    refuse_missing(snapshot, PlanKind.DISKS)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    dirs = np.flatnonzero(placement.takes)
    total, before = placement.total_bytes, placement.after_bytes()
    band = band_of_disks(placement, dirs, tolerance)
    stages = _evened(placement, tolerance, limits, runs)
    after = placement.after_bytes()
    left = band.outside_bytes(after)[dirs]
    shares = np.divide(after, total, out=np.zeros(len(total)), where=total > 0)[dirs]
    bounds = Bounds(_least(band, before, dirs), _least(band, after, dirs))
    return plan_of(
        placement,
        PlanKind.DISKS,
        [("tolerance", f"{tolerance:g}")],
        [*_why(placement, dirs, band, before, left, shares), *_order_of(stages)],
        bounds,
        limits=limits,
        stages=stages,
    )


def _evened(placement: Placement, tolerance: float, limits: Limits, runs: int) -> tuple[PlanStage, ...]:
    """Bring the placement to where planning again would change nothing, and return the stages of the way.

    Each round plans on the fleet that the one before has planned. The rounds together are one way, unless
    only the rounds one by one find an order that fits.
    """
    first = _round(placement, tolerance, runs)
    if first is None or not _is_outside(placement, tolerance):
        return first or ()
    stages, reached = list(first), placement
    for _ in range(_ROUNDS_MAX - 1):
        reached = Placement(state_of(reached), disk_limit=limits.disk_limit, allowed=limits.allowed)
        made = _round(reached, tolerance, runs)
        if made is None:
            break
        stages += made
        placement.adopt(reached.brokers, reached.log_dirs)
        if not _is_outside(reached, tolerance):
            break
    if len(stages) == len(first):
        return first
    brokers, log_dirs = placement.brokers, placement.log_dirs
    direct = in_stages(placement)
    if np.array_equal(brokers, placement.brokers) and np.array_equal(log_dirs, placement.log_dirs):
        return direct
    placement.adopt(brokers, log_dirs)
    return tuple(stages)


def _is_outside(placement: Placement, tolerance: float) -> bool:
    dirs = np.flatnonzero(placement.takes)
    band = band_of_disks(placement, dirs, tolerance)
    return bool(band.outside_bytes(placement.after_bytes())[dirs].any())


def _round(placement: Placement, tolerance: float, runs: int) -> tuple[PlanStage, ...] | None:
    """Make a placement in which nothing has moved evener, and return the stages that lead there; None, and
    nothing has moved, where too little is gained."""
    dirs = np.flatnonzero(placement.takes)
    before = placement.after_bytes()
    band = band_of_disks(placement, dirs, tolerance)
    if not band.outside_bytes(before)[dirs].any():
        return None
    transfers = Transfers(placement)
    down, up = _levels(placement, dirs, band)
    transfers.within(dirs, down, up)
    _even_groups(placement, transfers, dirs, band, tolerance)
    _finish(placement, transfers, dirs, band)
    improve(placement, dirs, band, _least(band, before, dirs), transfers.leading_max, runs=runs)
    stages = in_stages(placement)
    after = placement.after_bytes()
    evener = _unevenness(placement, dirs, band, after) < _unevenness(placement, dirs, band, before)
    left = _outside_squares(placement, dirs, band, after)
    if not evener or left > (1 - _GAIN_MIN) * _outside_squares(placement, dirs, band, before):
        placement.adopt(placement.brokers_before, placement.log_dirs_before)
        return None
    return stages


def band_of_disks(placement: Placement, dirs: Int64s, tolerance: float) -> Band:
    """Return bytes by every directory of the snapshot; the mean is of `dirs` alone."""
    total = placement.total_bytes
    of_dirs = band_of(placement.after_bytes()[dirs], total[dirs], tolerance)
    low, high = np.zeros(len(total), np.int64), np.zeros(len(total), np.int64)
    low[dirs], high[dirs] = of_dirs.low_bytes, of_dirs.high_bytes
    return Band(of_dirs.mean, low, high)


def _levels(placement: Placement, dirs: Int64s, band: Band) -> tuple[Int64s, Int64s]:
    after, total = placement.after_bytes(), placement.total_bytes
    down, up = np.zeros(len(total), np.int64), np.zeros(len(total), np.int64)
    own = Band(band.mean, band.low_bytes[dirs], band.high_bytes[dirs])
    down[dirs], up[dirs] = levels(after[dirs], total[dirs], own)
    return down, up


def _unevenness(placement: Placement, dirs: Int64s, band: Band, used_bytes: Int64s) -> float:
    """Return the squared distance from the mean, by capacity. A change that does not lower it is no gain."""
    total = placement.total_bytes[dirs]
    return float((total * (used_bytes[dirs] / total - band.mean) ** 2).sum())


def _outside_squares(placement: Placement, dirs: Int64s, band: Band, used_bytes: Int64s) -> float:
    outside = band.outside_bytes(used_bytes)[dirs].astype(np.float64)
    return float((outside**2 / placement.total_bytes[dirs]).sum())


def _order_of(stages: Sequence[PlanStage]) -> list[str]:
    if len(stages) < 2:
        return []
    return [
        f"The moves are made in {len(stages)} stages, one after the other: what leaves a disk in one makes"
        " room for what comes to it in the next."
    ]


def _least(band: Band, used_bytes: Int64s, dirs: Int64s) -> int:
    return Band(band.mean, band.low_bytes[dirs], band.high_bytes[dirs]).least_bytes(used_bytes[dirs])


def _even_groups(
    placement: Placement, transfers: Transfers, dirs: Int64s, band: Band, tolerance: float
) -> None:
    """Even out the groups: first between any two disks within the band, then within each group."""
    if band.outside_bytes(placement.after_bytes())[dirs].any():
        transfers.within(dirs, band.high_bytes, band.high_bytes)
    if band.outside_bytes(placement.after_bytes())[dirs].any():
        transfers.within(dirs, band.low_bytes, band.low_bytes)
    for groups in _groupings(placement, dirs):
        outside = band.outside_bytes(placement.after_bytes()) > 0
        for number in np.unique(groups):
            group = dirs[groups == number]
            if outside[group].any():
                own = band_of_disks(placement, group, tolerance)
                if own.outside_bytes(placement.after_bytes())[group].any():
                    transfers.within(group, *_levels(placement, group, own))


def _groupings(placement: Placement, dirs: Int64s) -> list[Int32s]:
    """Return groupings, each a number per disk: brokers that the same placement rules allow, where there are
    several such groups, and of these those of one rack."""
    brokers = placement.snapshot.log_dirs.brokers[dirs]
    racks, classes = placement.racks[brokers], placement.allowed.broker_classes()[brokers]
    if not classes.size or (classes == classes[0]).all():
        return [racks]
    return [classes, classes * (int(racks.max()) + 1) + racks]


def _finish(placement: Placement, transfers: Transfers, dirs: Int64s, band: Band) -> None:
    """Move another replica for each disk that is still outside the band.

    It is the smallest one that suffices, if any does.
    """
    after = placement.after_bytes()
    for source in dirs[after[dirs] > band.high_bytes[dirs]].tolist():
        shares = placement.utilisation()[dirs]
        for target in dirs[np.argsort(shares, kind="stable")].tolist():
            if target != source and _move_smallest(placement, transfers, source, target, band):
                break
    after = placement.after_bytes()
    for target in dirs[after[dirs] < band.low_bytes[dirs]].tolist():
        shares = placement.utilisation()[dirs]
        for source in dirs[np.argsort(-shares, kind="stable")].tolist():
            if target != source and _move_smallest(placement, transfers, source, target, band):
                break


def _move_smallest(placement: Placement, transfers: Transfers, source: int, target: int, band: Band) -> bool:
    """Move the smallest replica after which the one that was outside is within, and the other no worse."""
    given, got = placement.after_of(source), placement.after_of(target)
    above = given - int(band.high_bytes[source])
    need = above if above > 0 else int(band.low_bytes[target]) - got
    room = min(int(band.high_bytes[target]) - got, placement.room_of(target))
    spare = given - int(band.low_bytes[source])
    if need <= 0 or room < need or spare < need:
        return False
    positions = transfers.unmoved(source)
    if not positions.size:
        return False
    leaving = Leaving(placement, positions)
    sizes = placement.partition_bytes[positions // placement.slots]
    fits = leaving.allowed(target) & (sizes >= need) & (sizes <= min(room, spare))
    preferred = positions % placement.slots == 0
    if placement.leading[placement.snapshot.log_dirs.brokers[target]] >= transfers.leading_max:
        fits &= ~preferred | leaving.on_broker(target)
    if not fits.any():
        return False
    placement.move(positions[np.flatnonzero(fits)[-1:]], target)
    return True


def _why(
    placement: Placement, dirs: Int64s, band: Band, before: Int64s, left: Int64s, shares: Floats
) -> list[str]:
    if dirs.size < 2:
        return ["Fewer than two disks take replicas: there is nowhere to move to."]
    total = placement.total_bytes[dirs]
    old = before[dirs] / total
    outside = int((band.outside_bytes(before)[dirs] > 0).sum())
    said = [
        f"Disks are {old.min():.1%} to {old.max():.1%} full, {band.mean:.1%} in the mean;"
        f" {outside} of {dirs.size} are outside the tolerance."
    ]
    if not outside:
        return [*said, "Nothing is to be gained."]
    said.append(f"Afterwards they are {shares.min():.1%} to {shares.max():.1%} full.")
    if left.any():
        said.append(
            f"{int((left > 0).sum())} stay outside: racks, rules, limits, or replicas larger than what"
            " is missing, let nothing more pass."
        )
    apart = len(placement.takes) - dirs.size
    if apart:
        said.append(f"{apart} log directories take no replicas and are left as they are.")
    return said

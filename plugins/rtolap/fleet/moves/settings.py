"""Settings of a mover."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MoverSettings:
    """Limits and intervals of a mover.

    Attributes:
        look_every_s: Time between two looks at the brokers.
        moves_per_broker: Moves that may begin or end at a broker at a time. Stalled moves do not count.
        moves_per_broker_max: The same with the stalled moves.
        ahead_s: Under a throttle, a broker gets moves that keep it busy for this long.
        stall_ms: A move without progress for this long is stalled and no longer counts.
        give_up_ms: A move without progress for this long is undone.
        delete_bytes_per_s: Rate at which cancels make a broker delete copies.
        room_share: Share of a disk that stays free.
        unclear_ms: Brokers may contradict the plan for this long before the partition counts as changed.
        elect_ms: Time during which the election of the preferred leader is retried.
        pace_looks: Number of looks over which the mover measures whether copies gain on new writes.
        gain_share: Share of the copied bytes by which a copy has to gain.
        produce_p99_ms_max: Produce latency above which a broker gets fewer moves. None: no limit.
        produce_every_ms: Time between two readings of the produce latency.
        report_every_ms: Interval at which the mover stores the time of its last look.
    """

    look_every_s: float = 2.0
    moves_per_broker: int = 5
    moves_per_broker_max: int = 15
    ahead_s: float = 30.0
    stall_ms: int = 60_000
    give_up_ms: int = 30 * 60_000
    delete_bytes_per_s: int = 200_000_000
    room_share: float = 0.05
    unclear_ms: int = 20_000
    elect_ms: int = 10_000
    pace_looks: int = 15
    gain_share: float = 0.05
    produce_p99_ms_max: float | None = None
    produce_every_ms: int = 10_000
    report_every_ms: int = 10_000

    @property
    def pace_ms(self) -> int:
        return int(self.pace_looks * self.look_every_s * 1000)

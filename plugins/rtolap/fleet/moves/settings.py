"""Settings of a mover."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MoverSettings:
    """moves_per_broker: at most so many at a time begin or end at a broker, those that stall not counted;
    with them at most `moves_per_broker_max`. ahead_s: under a throttle a broker gets so many moves that it is
    busy for so long. stall_ms: without progress for so long, a move holds nobody up. give_up_ms: without
    progress for so long, it is undone. delete_bytes_per_s: cancels have a broker delete no more. room_share:
    of a disk that stays free. unclear_ms: for so long brokers may say what does not fit before somebody else
    is held to have changed it. elect_ms: for so long an election is tried. pace_looks: over so
    many looks it is measured whether copies gain on what is written; gain_share: of what is copied, is a
    gain. produce_p99_ms_max: a broker whose writes take longer is given fewer moves, None: no limit;
    produce_every_ms: between two readings of that. tell_every_ms: so often it is kept that brokers were
    looked at."""

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
    tell_every_ms: int = 10_000

    @property
    def pace_ms(self) -> int:
        return int(self.pace_looks * self.look_every_s * 1000)

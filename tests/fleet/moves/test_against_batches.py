"""The sliding window against serial batches, the way of Kafka's own tool, on the same cluster."""

from tests.support.fleet.long_tail import STUCK_S, by_batches, by_window

SEED = 11


def test_stuck_partitions_hold_up_batches_and_not_the_window() -> None:
    """In batches each waits for its stuck one; the window has done all others before any of them goes on."""
    window, batches = by_window(SEED), by_batches(SEED)
    assert window.others_s < STUCK_S
    assert batches.others_s > 5 * window.others_s
    assert batches.all_s > 5 * window.all_s

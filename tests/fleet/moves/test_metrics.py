"""What a mover shows Prometheus."""

import threading

from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.records import Hours
from rtolap.fleet.moves.requests import RequestKind

from tests.support.fleet.mover_runs import FENCE, MEGABYTE, TOKEN, MoverWorld
from tests.support.scrape import Scrape

NAME = "rtolap_fleet_mover"


class ThreeLooks(threading.Event):
    """Set by the third wait, which takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.waits == 3:
            self.set()
        return self.is_set()


class ShownWorld(MoverWorld):
    """`fence`: None while another mover has the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.fence: str | None = FENCE
        self.metrics = MoverMetrics(self.clock, self.settings)
        self.mover = Mover(
            *(self.administration, self.fleet_store, lambda: self.fence, self.clock, TOKEN),
            settings=self.settings,
            metrics=self.metrics,
            stopping=ThreeLooks(),
        )

    def page(self) -> Scrape:
        return Scrape(self.metrics.registry.render()[0].decode())


def test_moves_bytes_and_the_end_are_shown_while_a_plan_is_carried_out() -> None:
    world = ShownWorld()
    moves = [world.planned(world.add("orders", n, [1, 3], 300 * MEGABYTE), [2, 3]) for n in range(4)]
    world.submit(moves, rate=5 * MEGABYTE)
    world.run(20)
    page = world.page()
    assert page(f"{NAME}_leading") == 1
    assert page(f"{NAME}_plan_state", state="running") == 1
    assert page(f"{NAME}_moves", state="copying") == 1
    assert page(f"{NAME}_moves", state="pending") == 3
    assert page(f"{NAME}_copied_bytes_per_second") == 5 * MEGABYTE
    assert 1_100 * MEGABYTE <= page(f"{NAME}_left_bytes") <= 1_120 * MEGABYTE
    assert page(f"{NAME}_expected_end_seconds") - world.clock.now_ms() / 1000 == page(
        f"{NAME}_left_bytes"
    ) / (5 * MEGABYTE)
    assert 18 <= page(f"{NAME}_oldest_move_seconds") <= 20
    assert page(f"{NAME}_throttle_bytes_per_second") == 5 * MEGABYTE
    assert page(f"{NAME}_window_open") == 1
    assert f"{NAME}_throttle_needed_bytes_per_second" not in page
    world.cluster.partitions[moves[0].partition].stuck = True
    world.run(120)
    page = world.page()
    assert page(f"{NAME}_slow_moves", reason="stalled") == 1
    assert page(f"{NAME}_slow_moves", reason="tail") == 0
    world.cluster.partitions[moves[0].partition].stuck = False
    world.run_until_ended()
    world.run(2)
    page = world.page()
    assert page(f"{NAME}_moves") == 0
    assert page(f"{NAME}_plan_state") == 0
    assert page(f"{NAME}_requests_total", kind="submit", outcome="taken") == 1


def test_moves_that_do_not_gain_are_shown_with_the_throttle_that_they_need() -> None:
    world = ShownWorld()
    partition = world.add("orders", 0, [1, 3], 60 * MEGABYTE)
    world.cluster.partitions[partition].written_bytes_per_s = 2 * MEGABYTE
    world.submit([world.planned(partition, [2, 3])], rate=2 * MEGABYTE)
    world.run(100)
    page = world.page()
    assert page(f"{NAME}_slow_moves", reason="behind") == 1
    assert page(f"{NAME}_throttle_needed_bytes_per_second") == 8 * MEGABYTE
    assert f"{NAME}_expected_end_seconds" not in page


def test_closed_hours_refusals_and_errors_are_shown_by_what_they_are() -> None:
    world = ShownWorld()
    midnight_ms = 1_700_006_400_000
    world.clock.advance_ms(midnight_ms - world.clock.now_ms())
    world.submit([world.planned(world.add("orders", 0, [1, 3]), [2, 3])], hours=Hours(60, 120))
    world.ask(RequestKind.PAUSE, token="guessed")
    world.run(3)
    page = world.page()
    assert page(f"{NAME}_window_open") == 0
    # ten megabytes at five a second, from one o'clock on
    assert page(f"{NAME}_expected_end_seconds") == midnight_ms / 1000 + 3600 + 2
    assert page(f"{NAME}_requests_total", kind="pause", outcome="forbidden") == 1


def test_steps_that_fail_are_counted_by_the_code_of_their_error() -> None:
    world = ShownWorld()
    world.submit([world.planned(world.add("orders", 0, [1, 3], 900 * MEGABYTE), [2, 3])])
    world.run(3)
    world.cluster.answers = False
    world.mover.run()
    assert world.page()(f"{NAME}_errors_total", code="unavailable") == 3


def test_a_mover_that_stands_by_shows_no_plan() -> None:
    world = ShownWorld()
    world.submit([world.planned(world.add("orders", 0, [1, 3], 900 * MEGABYTE), [2, 3])])
    world.run(3)
    world.fence = None
    world.run(1)
    page = world.page()
    assert page(f"{NAME}_leading") == 0
    assert page(f"{NAME}_plan_state") == 0
    assert f"{NAME}_left_bytes" not in page

"""A receiver process that is killed -9 while it answers: an error or the whole answer, never a part of it."""

from __future__ import annotations

import random
import signal
import threading
from decimal import Decimal

import pytest
from rtolap.base.errors import RtolapError

from tests.support.cubes.builders import START_MS, Event
from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.recount import Answer
from tests.support.cubes.services import wait_for
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration

ASKERS = 3
PLACES = 6_000  # an answer of as many rows is sent in many pieces


class Askers:
    """Threads that ask for everything, again as soon as they have an answer, until they get an error."""

    def __init__(self, world: ReceiverWorld) -> None:
        self.answers: list[tuple[Answer, dict[int, int]]] = []
        self.errors: list[RtolapError] = []
        self._world = world
        self._threads = [threading.Thread(target=self._ask) for _ in range(ASKERS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        try:
            while True:
                self.answers.append(self._world.ask("r0", {}))
        except RtolapError as error:
            self.errors.append(error)

    def answered_again(self) -> None:
        before = len(self.answers)
        wait_for("they are answered", lambda: len(self.answers) > before)

    def ended(self) -> None:
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)


def _produce(world: ReceiverWorld, count: int) -> None:
    """Events of as many places, in one window, with a decimal that is never twice the same."""
    for number in range(count):
        place, price = len(world.log[0]) * 2 + number % 2, Decimal(number) / 100
        event = Event(START_MS, "a", place, number, price)
        value = b'{"ts":%d,"kind":"a","place":%d,"amount":%d,"price":"%s"}' % (
            START_MS,
            place,
            number,
            str(price).encode(),
        )
        world.send(number % 2, value, event)
    world.producer.flush(30)


@pytest.mark.seeded
def test_an_asker_gets_an_error_or_the_whole_answer_of_a_receiver_that_is_killed(
    world: ReceiverWorld,
) -> None:
    dice = random.Random(1)
    world.assign()
    world.start("r0")
    _produce(world, PLACES)
    assert world.exact("r0")
    for _ in range(so_many(2)):
        askers = Askers(world)
        _produce(world, 500)
        askers.answered_again()
        # No condition to wait for: wherever in its answers it is just now.
        threading.Event().wait(dice.uniform(0, 0.2))
        world.end("r0", signal.SIGKILL)
        askers.ended()
        assert len(askers.errors) == ASKERS, "each was asking when it was killed"
        for answer, positions in askers.answers[-2 * ASKERS :]:
            assert answer == world.expected(positions)
        world.start("r0")
        assert world.exact("r0"), "checkpoint and replay, after a kill in an answer"

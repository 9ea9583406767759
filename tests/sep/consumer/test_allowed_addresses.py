"""Who may connect: addresses, networks and names, looked up again when an unknown client knocks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses, networks_of


class Listing:
    """What is allowed, by one answer after the other; the last one stays. Errors are raised."""

    def __init__(self, *answers: list[str] | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    def __call__(self) -> list[str]:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_addresses_networks_and_names() -> None:
    async def look() -> None:
        allowed = AllowedAddresses(Listing(["10.1.0.0/16", "fd00::7", "localhost", "absent.invalid"]))
        assert not allowed.allows("10.1.2.3")  # nobody before the first look-up
        await allowed.refresh()
        for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "fd00::7%eth0", "127.0.0.1"):
            assert allowed.allows(address), address
        for address in ("10.2.0.1", "fd00::8", "not an address", ""):
            assert not allowed.allows(address), address

    run(look())
    with pytest.raises(DefinitionError, match="is no network"):
        networks_of("10.1.0.5/16")


@pytest.mark.parametrize("error", [Unavailable("ZooKeeper is away"), OSError("no route"), KeyError("a bug")])
def test_who_was_known_stays_known_when_a_look_up_fails(error: Exception) -> None:
    async def look() -> None:
        allowed = AllowedAddresses(Listing(["10.0.0.1"], error, ["10.0.0.2"]))
        await allowed.refresh()
        await allowed.refresh()
        assert allowed.failures == 1
        assert allowed.allows("10.0.0.1")
        await allowed.refresh()
        assert allowed.allows("10.0.0.2")
        assert not allowed.allows("10.0.0.1")

    run(look())


def test_a_new_server_is_looked_up_and_many_strangers_cause_one_look_up() -> None:
    async def look() -> None:
        listing = Listing(["10.0.0.1"], ["10.0.0.1", "10.0.0.2"])
        allowed = AllowedAddresses(listing)
        await allowed.refresh()
        allowed._looked_up_s -= 60  # as if it were a minute ago
        answers = await asyncio.gather(*(allowed.admits(f"10.0.0.{number}") for number in range(1, 100)))
        assert answers == [True, True] + [False] * 97
        assert listing.asked == 2
        assert not await allowed.admits("10.9.9.9")
        assert listing.asked == 2

    run(look())


def test_they_are_looked_up_again_from_time_to_time() -> None:
    async def look() -> None:
        listing = Listing(["10.0.0.1"], Unavailable("away"), ["10.0.0.2"])
        allowed = AllowedAddresses(listing, refresh_s=0.001)
        keeping = asyncio.create_task(allowed.keep_fresh())
        while not allowed.allows("10.0.0.2"):
            await asyncio.sleep(0.001)
        keeping.cancel()

    run(look())

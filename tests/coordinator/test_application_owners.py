"""Applications are spread over the coordinators that live, and moved without a step back.

Seeded runs of several coordinators against the slow model of a server: see `owners_world`.
"""

from __future__ import annotations

import pytest

from tests.support.seeds import so_many
from tests.support.watermarks.owners_world import OwnersWorld

STEPS = 120
STEPS_OF = {
    OwnersWorld.read: 25,
    OwnersWorld.send: 40,
    OwnersWorld.tick: 25,
    OwnersWorld.ask: 15,
    OwnersWorld.advance: 12,
    OwnersWorld.repeat: 6,
    OwnersWorld.grow: 2,
    OwnersWorld.recreate: 1,
    OwnersWorld.join: 4,
    OwnersWorld.leave: 2,
    OwnersWorld.kill: 2,
    OwnersWorld.freeze: 4,
    OwnersWorld.expire: 5,
    OwnersWorld.thaw: 5,
    OwnersWorld.lag: 3,
    OwnersWorld.break_commits: 2,
}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(40, 100)))
def test_whoever_comes_goes_or_freezes_no_watermark_steps_back_or_differs_from_the_model(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = OwnersWorld(seed, monkeypatch)
    done: list[str] = []
    try:
        for step in world.random.choices([*STEPS_OF], weights=[*STEPS_OF.values()], k=STEPS):
            done.append(step.__name__)
            step(world)
            world.settle()
            world.check()
        world.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}, after {', '.join(done)}")
        raise
    finally:
        world.close()

"""A loader between real processes, each of which is killed: the table equals a recount of the topic."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rtolap.testing.loader_runs import MODELS, answer_of
from rtolap.testing.loader_world import Around, LoaderWorld

SEEDS = int(os.environ.get("RTOLAP_LOADER_KILL_SEEDS", "3"))
RECORDS = 3_000
VICTIMS = ("loader", "door", "node", "kafka", "mariadb")


def _kill_and_start(world: LoaderWorld, around: Around, victim: str) -> None:
    if victim == "loader":
        world.process.kill()
        world.process.start(wait=False)
    elif victim in ("kafka", "mariadb"):
        server = around.kafka if victim == "kafka" else around.mariadb
        server.kill()
        server.start()
    else:
        around.cluster.kill(f"{victim}-0")
        around.cluster.restart(f"{victim}-0")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_equal_a_recount_whoever_is_killed(around: Around, tmp_path: Path, seed: int) -> None:
    """More seeds, or one that failed: RTOLAP_LOADER_KILL_SEEDS=10, `-k "[7]"`."""
    chooser = random.Random(seed)
    name = f"kills_{seed}_{os.urandom(3).hex()}"
    model = MODELS[3 * seed % len(MODELS)]  # the first three are one of each: duplicate, unique, aggregate
    world = LoaderWorld(
        name,
        model,
        around,
        tmp_path,
        two_phase=chooser.random() < 0.5,
    )
    try:
        world.process.start()
        victims = chooser.sample(VICTIMS, len(VICTIMS))
        for step, victim in enumerate(victims):
            world.produce(chooser, RECORDS)
            if step == 2:
                world.add_partition()
            _kill_and_start(world, around, victim)
        world.produce(chooser, RECORDS)
        world.wait_loaded()
        found = (
            answer_of(model, world.rows())
            if model == "duplicate"
            else sorted((row["k"], row["v"], row["n"], row["src"]) for row in world.rows())
        )
        assert found == answer_of(model, world.produced), f"seed {seed}: {model}, {victims}"
    finally:
        world.close()

"""Dead letters in a topic and in a file, on a real Kafka and a real front end: replayed once though replays
are killed, and dropped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rtolap.cli.main import app
from rtolap.model.loader import LoaderBatch, LoaderColumn, LoaderRejects
from rtolap.model.stored.table import StoredColumn
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.letters import LetterSelection, ReplayRequest
from rtolap.protocols.stored_tables.messages import AddColumn, TableName
from typer.testing import CliRunner

from tests.support.cubes.services import wait_for
from tests.support.loader.loader_world import DATABASE, Around, LoaderWorld
from tests.support.stored.stream_load_cluster import TOKEN

GOOD, LATE, BROKEN = 200, 2_000, 5
KILLS = 2


@pytest.fixture(params=["topic", "file"])
def world(
    around: Around,
    tmp_path: Path,
    unique_name: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> LoaderWorld:
    for name, value in {
        **around.env,
        "RTOLAP_KAFKA": around.kafka.address,
        "RTOLAP_TOKEN_FILE": str(around.cluster.folder / "token"),
        "RTOLAP_DATA_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    return LoaderWorld(
        f"d_{unique_name[-8:]}",
        "duplicate",
        around,
        tmp_path,
        batch=LoaderBatch(rows=300, interval_ms=200),
        rejects=LoaderRejects(tolerance_percent=100, to=request.param),
        unknown_columns="reject",
        columns=(LoaderColumn("src", source="key"),),
    )


def told(world: LoaderWorld, *arguments: str) -> Any:
    result = CliRunner().invoke(app, ["loader", "dead-letters", *arguments, world.name, "--json"])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return json.loads(result.stdout)


def keys(world: LoaderWorld) -> Counter[int]:
    return Counter(row["k"] for row in world.rows())


def killed_replay(world: LoaderWorld) -> None:
    """Kill a replay as soon as the ledger says that a load of it is under way."""
    words = (sys.executable, "-m", "rtolap.cli.main", "loader", "dead-letters", "replay", world.name, "--yes")
    process = subprocess.Popen(words, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_for("a replay is under way", lambda: bool(world.access.letters.unfinished(world.name)), 60)
    finally:
        process.kill()
        process.wait()


def test_letters_are_loaded_once_though_replays_are_killed_and_what_is_dropped_never_is(
    world: LoaderWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = random.Random(7)
    late = range(10_000, 10_000 + LATE)
    records: list[tuple[int, bytes | None]] = [
        *((chooser.randrange(2), b'{"k": %d, "v": 1}' % number) for number in range(GOOD)),
        *((chooser.randrange(2), b'{"k": %d, "v": 1, "late": 5}' % number) for number in late),
        *((0, b"{broken") for _ in range(BROKEN)),
    ]
    chooser.shuffle(records)
    try:
        world.produce_values(records)
        world.process.start()
        world.wait_loaded()
        assert world.access.letters.counts(world.name) == {"OPEN": LATE + BROKEN}
        assert sum(keys(world).values()) == GOOD

        listed = told(world, "list")
        assert len(listed) == 50
        assert {each["state"] for each in listed} == {"OPEN"}
        assert told(world, "replay", "--yes")["loaded"] == 0  # the definition is the same
        assert world.access.letters.counts(world.name) == {"OPEN": LATE + BROKEN}

        added = AddColumn(StoredColumn("late", "bigint"))
        world.cluster.tables.change_columns(TableName(DATABASE, world.name), (added,))
        if world.loader.rejects.to == "file":
            with monkeypatch.context() as elsewhere:  # a host on which no process of the loader has run
                elsewhere.setenv("RTOLAP_DATA_DIR", str(tmp_path / "elsewhere"))
                there = told(world, "replay", "--yes")
            assert (there["loaded"], there["missing"]) == (0, LATE + BROKEN)
        for _ in range(KILLS):
            killed_replay(world)
        done: dict[str, Any] = {}

        def replayed() -> bool:
            """Ask the loader's process, while the turn of the one that was killed may still run."""
            result = CliRunner().invoke(
                app, ["loader", "dead-letters", "replay", world.name, "--yes", "--json"]
            )
            done.update(json.loads(result.stdout) if result.exit_code == 0 else {})
            return result.exit_code == 0

        wait_for("the turn of the one that was killed is over", replayed, 60)
        assert done["refused"] == BROKEN
        found = keys(world)
        assert found == Counter([*range(GOOD), *late])
        assert {row["late"] for row in world.rows() if row["k"] >= 10_000} == {5}
        assert world.access.letters.counts(world.name) == {"OPEN": BROKEN, "REPLAYED": LATE}

        with LoaderClient(f"http://{world.process.address}", TOKEN, timeout_s=60) as client:
            selection = LetterSelection(reason="unknown_column")
            again = client.replay(ReplayRequest(who="ann", selection=selection))
            assert (again.loaded, again.refused) == (0, 0)
            left = client.dead_letters(state="OPEN").letters
            assert [each.value for each in left] == ["{broken"] * BROKEN
            assert len(client.dead_letters(3, reason="unknown_column").letters) == 3
            assert all(each.note.startswith("refused again: malformed_json") for each in left)
        assert told(world, "drop", "--yes", "--why", "garbage", "--by", "ann") == {"dropped": BROKEN}
        assert told(world, "drop", "--yes") == {"dropped": 0}
        assert told(world, "replay", "--yes")["loaded"] == 0
        dropped = told(world, "list", "--state", "dropped")
        assert {(each["who"], each["note"]) for each in dropped} == {("ann", "garbage")}
        assert keys(world) == found
    finally:
        world.close()

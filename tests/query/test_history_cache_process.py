"""The query process with the settings of a history cache follows the cluster, and gives the folder back."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

from rtolap.base.settings import Settings
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.states import Condition, FileState
from rtolap.query.run import QueryProcess

from tests.support.query.query_world import QueryWorld
from tests.support.waiting import until

CHANGES_WORLD = True


def test_a_process_copies_what_becomes_ready(world: QueryWorld, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("")
    (tmp_path / "token").write_text("secret")
    settings = Settings(
        object_store=world.store.uri(""),
        history_cache_dir=tmp_path / "cache",
        users_file=tmp_path / "users",
        token_file=tmp_path / "token",
        data_dir=tmp_path,
        include_dir=tmp_path,
        query_http_port=0,
        query_mysql_port=0,
    )
    with closing(QueryProcess(settings, world.metadata.store)) as process:
        keeper = process.keeper
        assert keeper is not None
        keeper.start()
        until(lambda: keeper.condition is Condition.PLACED, "history is copied")
        before = keeper.cache.count_in(FileState.CACHED)
        missing = next(s for s in world.segments("flights") if s.name not in world.built["flights"])
        world.build(missing, random.Random(1), "flights")
        until(lambda: keeper.cache.count_in(FileState.CACHED) > before, "what became READY is copied too")
        until(lambda: keeper.condition is Condition.PLACED, "all of it")
    assert keeper.condition is Condition.CLOSED
    assert CacheFolder(tmp_path / "cache").lock()

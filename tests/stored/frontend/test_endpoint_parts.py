"""What an endpoint is made of: the pipe of a body, error files, who is master, standing duties."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import NotFound, NotLeader, Unavailable
from rtolap.stored.frontend.election import Election, Endpoint, Mastership
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.stream_load.body_pipe import BodyPipe
from rtolap.stored.stream_load.error_files import FILE_BYTES_MAX, ErrorFiles
from rtolap.stored.stream_load.periodic_task import PeriodicTask

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.waiting import until

FAR_S = 1e9


class TestBodyPipe:
    def test_chunks_come_in_order_and_end(self) -> None:
        async def run() -> list[bytes]:
            loop = asyncio.get_running_loop()
            pipe = BodyPipe(loop, bytes_max=10)
            reading = loop.run_in_executor(None, lambda: list(pipe.chunks(FAR_S)))
            for number in range(50):
                assert await pipe.put(b"%d" % number)
            pipe.end()
            return await reading

        assert asyncio.run(run()) == [b"%d" % number for number in range(50)]

    def test_a_full_pipe_takes_no_more_until_it_is_read(self) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            pipe = BodyPipe(loop, bytes_max=10)
            assert await pipe.put(b"x" * 20)  # one that is larger than the pipe goes in by itself
            waiting = asyncio.create_task(pipe.put(b"y"))
            done, _ = await asyncio.wait({waiting}, timeout=0.05)
            assert not done
            chunks = pipe.chunks(FAR_S)
            assert await loop.run_in_executor(None, lambda: next(chunks)) == b"x" * 20
            assert await asyncio.wait_for(waiting, 5)

        asyncio.run(run())

    def test_nobody_waits_for_a_reader_that_has_gone(self) -> None:
        async def run() -> None:
            pipe = BodyPipe(asyncio.get_running_loop(), bytes_max=1)
            assert await pipe.put(b"xx")
            waiting = asyncio.create_task(pipe.put(b"y"))
            await asyncio.sleep(0)
            pipe.close()
            assert not await asyncio.wait_for(waiting, 5)

        asyncio.run(run())

    def test_what_went_wrong_reaches_the_reader(self) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            pipe = BodyPipe(loop)
            assert await pipe.put(b"read by nobody")
            pipe.fail(Unavailable("the client went away"))
            with pytest.raises(Unavailable, match="went away"):
                await loop.run_in_executor(None, lambda: list(pipe.chunks(FAR_S)))
            late = BodyPipe(loop)
            with pytest.raises(Unavailable, match="in time"):
                await loop.run_in_executor(None, lambda: list(late.chunks(time.monotonic() + 0.05)))

        asyncio.run(run())


class TestErrorFiles:
    def test_a_file_holds_the_first_rows_and_says_how_many_more(self, tmp_path: Path) -> None:
        files = ErrorFiles(tmp_path, "http://endpoint")
        file = files.new()
        assert file.name is None
        for number in range(20):
            file.write_rows([(f"row {number} " + "x" * 5000, "no number")] * 20, count=1000)
        file.close()
        assert file.name is not None
        assert file.first == "no number"
        text = files.path(file.name).read_text()
        assert len(text) < FILE_BYTES_MAX + 10_000
        kept = text.count("Reason: no number. src line [row ")
        assert text.splitlines()[-1] == f"{20_000 - kept} more rows were rejected and are not shown here."
        assert files.url(file.name) == f"http://endpoint/api/_load_error_log?file={file.name}"

    def test_only_whole_names_are_found(self, tmp_path: Path) -> None:
        files = ErrorFiles(tmp_path / "errors", "http://endpoint")
        (tmp_path / "secret").write_text("x")
        for name in ("", ".", "..", "../secret", "a" * 32, "a" * 32 + "\n"):
            with pytest.raises(NotFound):
                files.path(name)

    def test_files_go_by_age_and_the_oldest_by_room(self, tmp_path: Path) -> None:
        files = ErrorFiles(tmp_path, "http://endpoint", keep_s=100, bytes_max=250)
        for name, age_s in (("old", 1000), ("first", 30), ("second", 20), ("third", 10)):
            (tmp_path / name).write_bytes(b"x" * 100)
            at_s = time.time() - age_s
            os.utime(tmp_path / name, (at_s, at_s))
        assert files.sweep() == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["second", "third"]

    def test_a_file_that_vanishes_while_it_is_looked_at_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = ErrorFiles(tmp_path, "http://endpoint", keep_s=0)
        (tmp_path / "there").write_bytes(b"x")
        listed = [tmp_path / "gone", tmp_path / "there"]
        monkeypatch.setattr(Path, "iterdir", lambda folder: iter(listed))
        assert files.sweep() == 1
        assert not (tmp_path / "there").exists()


class TestElection:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def ledger(self, clock: ManualClock, tmp_path: Path) -> Iterator[Ledger]:
        with open_ledger(tmp_path / "ledger.db", clock=clock) as opened:
            yield opened

    def _election(self, ledger: Ledger, name: str) -> Election:
        leases, here = Leases(ledger), Endpoint(f"http://{name}", f"http://{name}-bodies")
        return Election(ledger, leases, Mastership(leases, here.owner, lease_ms=1000), here)

    def test_one_leads_and_the_other_knows_where_it_is(self, ledger: Ledger, clock: ManualClock) -> None:
        first, second = self._election(ledger, "first"), self._election(ledger, "second")
        assert first.run_once()
        assert not second.run_once()
        assert second.master() == first.here == Endpoint("http://first", "http://first-bodies")
        with pytest.raises(NotLeader) as refused:
            second.require()
        assert refused.value.leader_url == "http://first"
        clock.advance_ms(1001)
        assert second.run_once()
        assert not first.run_once()
        assert first.master() == second.here

    def test_nobody_is_named_when_the_lease_is_over(self, ledger: Ledger, clock: ManualClock) -> None:
        first, second = self._election(ledger, "first"), self._election(ledger, "second")
        with pytest.raises(NotLeader):
            second.master()
        first.run_once()
        first.give_up()
        with pytest.raises(NotLeader):
            first.master()
        assert second.run_once()


class TestDuty:
    def test_it_goes_on_after_named_errors_and_is_woken(self) -> None:
        rounds: list[int] = []
        enough = threading.Event()

        def work() -> None:
            rounds.append(1)
            if len(rounds) == 3:
                enough.set()
            raise Unavailable("the ledger is away")

        broken: list[str] = []
        duty = PeriodicTask("test", 3600, work, broken.append)
        duty.start()

        def woken_and_enough() -> bool:
            duty.wake()
            return enough.is_set()

        until(woken_and_enough)
        duty.stop()
        assert broken == []

    def test_an_error_of_the_program_is_told(self) -> None:
        told = threading.Event()
        duty = PeriodicTask("test", 3600, lambda: 1 // 0, lambda name: told.set())
        duty.start()
        assert told.wait(10)
        duty.stop()

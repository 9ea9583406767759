"""What is wanted of a job that fails meanwhile: by its endpoint and by command, FAILED and its reason
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.cli.main import app
from rtolap.protocols.loader.messages import EXIT_FAILED
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobEvent, LoadJobs
from typer.testing import CliRunner

from tests.support.loader.running_loader import Running

FAILURE = Stopped(StopCause.OFFSETS_GONE, "retention was faster")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.close()


def failing_once_read(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> None:
    """The job fails right after whoever changes it has read its state."""
    read = LoadJobs.get
    pending = [fail]

    def get(jobs: LoadJobs, job_id: str) -> LoadJob:
        job = read(jobs, job_id)
        if pending and current_thread().name != "keep":  # that role looks every second
            pending.pop()()
        return job

    monkeypatch.setattr(LoadJobs, "get", get)


def kept(running: Running) -> tuple[str, str]:
    job = running.jobs.get("j")
    return job.state.value, job.reason


@pytest.mark.parametrize("change", ["pause", "resume"])
def test_its_endpoint_changes_nothing_of_a_loader_that_has_failed_and_ends(
    running: Running, change: str
) -> None:
    running.process.work.fail(FAILURE)  # and has not ended yet
    refused = running.post(change)
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal_transition")
    assert "expected FAIL, RESET, START, STOP in FAILED" in refused.json()["message"]
    assert "retention was faster" in refused.json()["message"]
    assert kept(running) == ("FAILED", str(FAILURE))
    running.process.follow()
    assert running.ended() == EXIT_FAILED


def test_a_pause_by_its_endpoint_that_comes_while_it_fails_keeps_the_failure(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once_read(monkeypatch, lambda: running.process.work.fail(FAILURE))
    running.post("pause")
    assert kept(running) == ("FAILED", str(FAILURE))
    running.process.follow()
    assert running.ended() == EXIT_FAILED


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_command_that_comes_while_it_fails_keeps_the_failure(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("RTOLAP_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")
    if command == "resume":
        running.post("pause")
    failing_once_read(monkeypatch, lambda: running.process.work.fail(FAILURE))
    result = CliRunner().invoke(app, ["loader", command, "j"])
    assert result.exit_code != 0
    assert kept(running) == ("FAILED", str(FAILURE))
    assert isinstance(result.exception, IllegalTransition)
    assert "expected FAIL, RESET, START, STOP in FAILED" in str(result.exception)


@pytest.mark.parametrize("change", ["pause", "resume"])
def test_a_loader_that_was_stopped_and_still_ends_is_neither_paused_nor_resumed(
    running: Running, change: str
) -> None:
    running.jobs.change_state("j", LoadJobEvent.STOP, "")
    refused = running.post(change)
    assert refused.status_code == 409
    assert "expected FAIL, RESET, START, STOP in STOPPED" in refused.json()["message"]
    assert kept(running)[0] == "STOPPED"


def test_a_stop_of_a_loader_that_fails_meanwhile_says_that_it_had_failed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once_read(monkeypatch, lambda: running.process.work.fail(FAILURE))
    assert running.post("stop").json()["state"] == "STOPPED"
    assert kept(running)[1].endswith(f"; it had failed: {FAILURE}")


def test_of_several_threads_that_fail_the_first_says_why(running: Running) -> None:
    running.process.work.fail(FAILURE)
    running.process.work.fail(Stopped(StopCause.BROKEN, "what followed from that"))
    assert kept(running) == ("FAILED", str(FAILURE))

"""Work of more than two seconds says how far it is, on a terminal alone, and leaves nothing there."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console
from rtolap.cli import progress

from tests.support.waiting import until

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., io.StringIO]:
    def made(*, is_terminal: bool, after_s: float) -> io.StringIO:
        written = io.StringIO()
        console = Console(file=written, force_terminal=is_terminal, width=80)
        monkeypatch.setattr(progress, "error_console", console)
        monkeypatch.setattr(progress, "SHOWN_AFTER_S", after_s)
        return written

    return made


def shown(written: io.StringIO) -> str:
    return _CONTROL.sub("", written.getvalue())


def test_long_work_shows_how_much_is_done_and_the_time_left(screen: Callable[..., io.StringIO]) -> None:
    written = screen(is_terminal=True, after_s=0.0)
    with progress.progress_of("comparing segments", 40) as done:
        done(10)
        until(lambda: "10/40" in shown(written), 10)
        assert "comparing segments" in shown(written)
        assert "left, 0:00:0" in shown(written)
    assert written.getvalue().endswith("\x1b[2K")  # the last thing it does is to erase its line


def test_work_without_a_known_end_counts_or_only_turns(screen: Callable[..., io.StringIO]) -> None:
    written = screen(is_terminal=True, after_s=0.0)
    with progress.progress_of("comparing rows", counts=True) as done:
        done(7000)
        until(lambda: "7000/?" in shown(written), 10)
    written = screen(is_terminal=True, after_s=0.0)
    with progress.progress_of("planning"):
        until(lambda: "planning" in shown(written), 10)
    assert "/" not in shown(written)


@pytest.mark.parametrize(("is_terminal", "after_s"), [(True, 3600.0), (False, 0.0)])
def test_short_work_and_a_pipe_get_nothing(
    screen: Callable[..., io.StringIO], is_terminal: bool, after_s: float
) -> None:
    written = screen(is_terminal=is_terminal, after_s=after_s)
    assert list(progress.tracked([3, 1, 2], "counting")) == [3, 1, 2]
    assert written.getvalue() == ""


def test_an_error_in_the_work_takes_it_away_and_goes_on(screen: Callable[..., io.StringIO]) -> None:
    written = screen(is_terminal=True, after_s=0.0)

    def fail() -> None:
        with progress.progress_of("comparing segments", 2):
            until(lambda: "0/2" in shown(written), 10)
            raise ValueError("no segment")

    with pytest.raises(ValueError, match="no segment"):
        fail()
    assert written.getvalue().endswith("\x1b[2K")

"""`rtolap sql` as a person uses it: keys typed into a pseudo-terminal, what the screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.query.statement_service import QueryLimits

from tests.support.query.query_endpoints import SLOW, TOKEN, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.integration
WAIT_S = 60.0
PROMPT, MORE = "rtolap>", "->"
ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)")


class Terminal:
    """One `rtolap sql` on a pseudo-terminal of its own, which is its controlling one: Ctrl-C is a signal."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.master, worker = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rtolap.cli.main", "sql"],
            stdin=worker,
            stdout=worker,
            stderr=worker,
            env=environment,
            start_new_session=True,
            preexec_fn=_on_its_terminal,  # noqa: PLW1509 the test has one thread here
        )
        os.close(worker)
        self.screen = ""

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait_for(self, *texts: str, within_s: float = WAIT_S) -> str:
        """Everything shown until all texts have been, in this order; the next call begins behind it."""
        deadline = time.monotonic() + patience_s(within_s)
        while True:
            end = self._end_of(texts)
            if end is not None:
                shown, self.screen = self.screen[:end], self.screen[end:]
                return shown
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"{texts} did not appear: {self.screen!r}"
            if select.select([self.master], [], [], left_s)[0]:
                try:
                    piece = os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError as error:
                    raise AssertionError(f"it ended before {texts}: {self.screen!r}") from error
                self.screen = _ESCAPE.sub("", self.screen + piece)

    def ask(self, sql: str, *texts: str) -> str:
        self.type(sql + ENTER)
        return self.wait_for(*texts, PROMPT)

    def exit_code(self) -> int:
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def _end_of(self, texts: tuple[str, ...]) -> int | None:
        at = 0
        for text in texts:
            found = self.screen.find(text, at)
            if found < 0:
                return None
            at = found + len(text)
        return at


def _on_its_terminal() -> None:
    """Who starts the tests in the background has them ignore interrupts, and with them what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def narrow(flights: QueryWorld) -> Iterator[Endpoints]:
    """One query at a time: an ended one that goes on would keep the next one out."""
    with open_endpoints(flights, query_limits=QueryLimits(queries_max=1)) as opened:
        yield opened


@pytest.fixture
def terminal(narrow: Endpoints, tmp_path: Path) -> Iterator[Terminal]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    opened = Terminal(
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("RTOLAP_")},
            "RTOLAP_HOST": "127.0.0.1",
            "RTOLAP_QUERY_HTTP_PORT": str(narrow.http_port),
            "RTOLAP_TOKEN_FILE": str(token),
            "RTOLAP_DATA_DIR": str(tmp_path),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm",
            "COLUMNS": "120",
        }
    )
    try:
        opened.wait_for(PROMPT)
        yield opened
    finally:
        opened.close()


def test_statements_over_lines_with_quotes_and_comments(terminal: Terminal) -> None:
    terminal.type("select count(*) as n" + ENTER)
    terminal.wait_for(MORE)
    terminal.type("from flights;" + ENTER)
    terminal.wait_for("400", PROMPT)
    terminal.ask("select concat('x;', 'y') as k; -- done", "x;y")
    terminal.type("select 'one;" + ENTER)
    terminal.wait_for(MORE)
    terminal.type("two' as t, 6 * 7 as u;" + ENTER)
    terminal.wait_for("42", PROMPT)
    terminal.ask("select 11 + 22 as a; select 33 + 44 as b;", "33", "77")


def test_an_error_does_not_end_the_session(terminal: Terminal) -> None:
    terminal.ask("select sum(nope) from flights;", "unknown column 'nope'")
    terminal.ask("select 'never' from nowhere; select 5000 + 55;", "unknown table")
    terminal.ask("select count(*) from flights;", "400")


def test_ctrl_c_ends_the_query_and_not_the_session(terminal: Terminal, narrow: Endpoints) -> None:
    before = narrow.service.rewrites
    terminal.type(f"{SLOW};{ENTER}")
    until(lambda: narrow.service.rewrites != before, "the query starts", timeout_s=WAIT_S)
    terminal.type(CTRL_C)
    terminal.wait_for("the query was interrupted", PROMPT)
    terminal.ask("select count(*) from flights;", "400")


def test_ctrl_c_at_the_prompt_forgets_what_was_begun(terminal: Terminal) -> None:
    terminal.type("select 'begun" + ENTER)
    terminal.wait_for(MORE)
    terminal.type(CTRL_C)
    terminal.wait_for(PROMPT)
    terminal.ask("select count(*) from flights;", "400")


@pytest.mark.parametrize("keys", ["\\q" + ENTER, "exit;" + ENTER, CTRL_D])
def test_the_session_ends_when_asked_to(terminal: Terminal, keys: str) -> None:
    terminal.type(keys)
    assert terminal.exit_code() == 0

"""Processes of subscriptions, as operators run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rtolap.metadata.store import MetadataStore
from rtolap.sep.subscriptions.records import SubscriptionPaths

from tests.support.waiting import patience_s, until


class ConsumerProcess:
    """`rtolap sep serve` of one subscription; its words go to `log`."""

    def __init__(
        self, name: str, zookeeper: str, kafka: str, log: Path, *, session_timeout_s: int = 4
    ) -> None:
        self.log = log
        self._name = name
        command = [sys.executable, "-m", "rtolap.cli.main", "sep", "serve", name, "--cluster", zookeeper]
        token = log.with_suffix(".token")
        token.write_text("a token\n")
        environment = {
            **os.environ,
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_SESSION_TIMEOUT_S": str(session_timeout_s),
            "RTOLAP_HOST": "127.0.0.1",
            "RTOLAP_TOKEN_FILE": str(token),
        }
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--host", "localhost", "--bind", "127.0.0.1"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def leads(self) -> bool:
        """By what it says of itself: it serves now."""
        return self.lives and self.told("region servers may ship to") > 0

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def told(self, words: str) -> int:
        """Return how often it has said that."""
        return self.log.read_text().count(words)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait(patience_s(30))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(patience_s(60))


def wait_for_leader(processes: list[ConsumerProcess]) -> ConsumerProcess:
    """Return one that leads; AssertionError with the words of all after a while."""

    def told() -> str:
        return "\n".join(process.log.read_text() for process in processes)

    leading: list[ConsumerProcess] = []

    def one_leads() -> bool:
        leading[:] = [process for process in processes if process.leads]
        return bool(leading)

    try:
        until(one_leads, "a leader")
    except AssertionError as error:
        raise AssertionError(told()) from error
    return leading[0]


def ports_of(store: MetadataStore, name: str) -> tuple[str, ...]:
    return store.children(SubscriptionPaths(name).rs)

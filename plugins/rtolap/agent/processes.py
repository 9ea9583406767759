"""The operating system's side, which starts, recognises and signals a process and reads its log.

Each process leads a session of its own, so that everything it starts can be ended with it. Its output goes to
`<logs>/<key>.<generation>.log`; a one-shot's exit code to `<key>.<generation>.exit`, written by `runner`, so
that it is known even when the agent was away as the process ended.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from rtolap.agent.cpus import inherited
from rtolap.agent.records import Handle
from rtolap.base.errors import ProcessFailed
from rtolap.base.pids import environment_of, pid_lives, same_start, start_of
from rtolap.protocols.agent.messages import FILES_MARK, LOG_TAIL_LINES

KEY_VARIABLE = "RTOLAP_AGENT_KEY"
GENERATION_VARIABLE = "RTOLAP_AGENT_GENERATION"
FOLDER_VARIABLE = "RTOLAP_AGENT_FOLDER"  # several agents of a host have the same keys
ENDED_MAX = 1000  # children whose exit codes are still known: each is noted once the disk lets it
LOG_FILE_BYTES_MAX = 64 << 20  # beyond it the older half is dropped
_LINE_CHARACTERS_MAX = 500
_EXEC_S = 30.0  # a process that has been forked executes its program within this time
_POLL_S = 0.02
_SAME_START_S = 1.0  # of a handle without a `Start`: the clock, and with it create_time, is adjusted a little
_RUNNER = Path(__file__).with_name("runner.py")

log = logging.getLogger(__name__)


class Processes:
    """Processes of this host. `cpus`: kind of process, the first part of its key → its processors."""

    def __init__(self, folder: Path, cpus: Mapping[str, frozenset[int]] | None = None) -> None:
        self._folder = folder.resolve()
        self._cpus = cpus or {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def log_path(self, key: str, generation: int) -> Path:
        return self._folder / f"{key}.{generation}.log"

    def exit_path(self, key: str, generation: int) -> Path:
        return self._folder / f"{key}.{generation}.exit"

    def files_path(self, key: str, generation: int) -> Path:
        return self._folder / f"{key}.{generation}.files"

    def write_caller_files(self, key: str, generation: int, files: dict[str, str]) -> None:
        """Write the files that the caller sent. `messages.check_files` has checked their names. Files left
        over from a crash are written again."""
        if not files:
            return
        folder = self.files_path(key, generation)
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    def remove_caller_files(self, key: str, generation: int) -> None:
        folder = self.files_path(key, generation)
        if folder.is_dir():
            shutil.rmtree(folder)

    def spawn(
        self, key: str, generation: int, argv: Sequence[str], env: dict[str, str], *, keep_exit: bool
    ) -> Handle:
        """Start in a new session, to `keep_exit` under a runner that notes the code. Raises ProcessFailed."""
        folder = str(self.files_path(key, generation))
        command = [
            folder + argument[len(FILES_MARK) :] if argument.startswith(FILES_MARK) else argument
            for argument in argv
        ]
        if keep_exit:
            exit_path = self.exit_path(key, generation)
            exit_path.unlink(missing_ok=True)
            command = [sys.executable, "-I", "-S", str(_RUNNER), str(exit_path), *command]
        marked = {**os.environ, **env, **self._marks(key, generation)}
        try:
            with (
                self.log_path(key, generation).open("ab") as output,
                inherited(self._cpus.get(key.partition(".")[0])),
            ):
                # Inherited from the fork on: who looks for the process knows of it before it has its marks.
                fcntl.flock(output, fcntl.LOCK_SH)
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=marked,
                    start_new_session=True,
                )
        except OSError as error:
            raise ProcessFailed(
                f"{key} generation {generation} cannot be started", found=str(error)
            ) from error
        ended = [pid for pid, other in self._children.items() if other.returncode is not None]
        for pid in ended[:-ENDED_MAX]:
            del self._children[pid]
        self._children[child.pid] = child
        return handle_of(child.pid)

    def alive(self, handle: Handle) -> bool:
        """Return True while that very process runs. Another with its pid is not."""
        child = self._children.get(handle.pid)
        if child is not None:
            return child.poll() is None
        try:
            return _is_same(handle) and pid_lives(handle.pid)
        except psutil.NoSuchProcess:
            return False

    def exit_code(self, key: str, generation: int, handle: Handle, *, keep_exit: bool) -> int | None:
        """Return the exit code. It is known for children and where it is kept; None for any other adopted
        process that has ended."""
        child = self._children.get(handle.pid)
        if keep_exit:
            try:
                return int(self.exit_path(key, generation).read_text())
            except FileNotFoundError:
                pass  # the runner itself was killed
        return child.poll() if child is not None else None

    def find(self, key: str, generation: int) -> Handle | None:
        """Return a process with this agent's marks that leads its session: started, but never noted.

        A process has its marks once it executes its program. From its fork until then it has the log.
        """
        marks = self._marks(key, generation)
        deadline_s = time.monotonic() + _EXEC_S
        while True:
            is_held = self._log_is_held(key, generation)
            found = _marked_leader(marks)
            if found is not None or not is_held:
                return found
            if time.monotonic() > deadline_s:
                log.warning("%s generation %d is not found, though its log is held", key, generation)
                return None
            time.sleep(_POLL_S)

    def _log_is_held(self, key: str, generation: int) -> bool:
        try:
            with self.log_path(key, generation).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _marks(self, key: str, generation: int) -> dict[str, str]:
        return {
            KEY_VARIABLE: key,
            GENERATION_VARIABLE: str(generation),
            FOLDER_VARIABLE: str(self._folder),
        }

    def session_members(self, leader: Handle) -> list[int]:
        """Return the living processes of the session that this process led, without zombies.

        A pid is not given out again while a session is named by it: if another process has it, none is left.
        """
        try:
            if not _is_same(leader):
                return []
        except psutil.NoSuchProcess:
            pass  # the leader ended; others of its session may live on
        members = []
        for other in psutil.pids():
            try:
                if os.getsid(other) == leader.pid and pid_lives(other):
                    members.append(other)
            except (ProcessLookupError, PermissionError):
                continue
        return members

    def terminate(self, handle: Handle) -> None:
        """Send SIGTERM to the leader's group: to the program and to what it started in its own group."""
        if not self.alive(handle):
            return
        try:
            os.killpg(handle.pid, signal.SIGTERM)
        except ProcessLookupError:
            return  # gone already

    def kill_session(self, leader: Handle) -> None:
        for member in self.session_members(leader):
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def log_bytes(self, key: str, generation: int, bytes_max: int) -> bytes:
        try:
            with self.log_path(key, generation).open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - bytes_max))
                return log.read(bytes_max)
        except FileNotFoundError:
            return b""

    def log_tail(self, key: str, generation: int) -> tuple[str, ...]:
        try:
            data = self.log_bytes(key, generation, LOG_TAIL_LINES * _LINE_CHARACTERS_MAX)
        except OSError as error:
            return (f"its log cannot be read: {error.strerror}",)
        text = data.decode("utf-8", "replace")
        return tuple(line[-_LINE_CHARACTERS_MAX:] for line in text.splitlines()[-LOG_TAIL_LINES:])

    def shorten_log(self, key: str, generation: int) -> None:
        """Keep the newer half of a log that has grown too large; the writer appends, so it goes on behind.

        Lines written between the copy and the truncation are lost: a bounded disk is worth that.
        """
        path = self.log_path(key, generation)
        try:
            if path.stat().st_size <= LOG_FILE_BYTES_MAX:
                return
        except FileNotFoundError:
            return
        tail = self.log_bytes(key, generation, LOG_FILE_BYTES_MAX // 2)
        with path.open("r+b") as log:
            log.truncate(0)
            log.write(b"[older lines were dropped]\n" + tail)

    def remove_files(self, key: str, generation: int) -> None:
        self.log_path(key, generation).unlink(missing_ok=True)
        self.exit_path(key, generation).unlink(missing_ok=True)
        self.remove_caller_files(key, generation)


def _marked_leader(marks: Mapping[str, str]) -> Handle | None:
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) != process.pid:
                continue
            if marks.items() <= environment_of(process).items():
                return handle_of(process.pid)
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue  # gone meanwhile, or somebody else's
    return None


def handle_of(pid: int) -> Handle:
    """Return the handle of a process that has not been waited for."""
    return Handle(pid, psutil.Process(pid).create_time(), start_of(pid))


def _is_same(handle: Handle) -> bool:
    """Return whether the pid is still that process's, which may have ended. Raises psutil.NoSuchProcess."""
    return same_start(handle.pid, handle.start, handle.create_time_s, _SAME_START_S)

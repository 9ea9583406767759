"""Agent protocol, REST on one host (port 7060, bearer token): messages.

`GET /health` (no token) · `GET /api/v1/processes` → ProcessList · `PUT /api/v1/processes/{key}` ProcessSpec ·
`GET /api/v1/processes/{key}` · `DELETE /api/v1/processes/{key}?generation=` (stops, and waits for the end) ·
`POST /api/v1/processes/{key}/lease` GenerationRef · `POST …/acknowledge` GenerationRef ·
`GET …/generation` → LastGeneration, the highest ever seen, 0 for none · `GET …/log?bytes=` (text) ·
`POST /api/v1/shutdown` Shutdown. Every other answer is a ProcessStatus.

A process is named by a key, and each requested start of it by a generation. The same key and
generation is the same process; a higher generation replaces it, after it is gone; a lower one is Refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError

LEASE_S_DEFAULT = 120.0  # a triggerer that dies is adopted within half a minute
ORPHAN_S_DEFAULT = 6 * 3600.0  # Airflow may be away for as long, and what it started goes on
STOP_GRACE_S_DEFAULT = 20.0
LOG_TAIL_LINES = 40
LOG_BYTES_MAX = 1 << 20
FILES_MAX = 64
FILES_BYTES_MAX = 4 << 20  # of all files of one request together
FILES_MARK = "{files}"

RESTARTS_VARIABLE = "RTOLAP_AGENT_RESTARTS"  # of a child: how often its agent has started it again

# Keys become file names.
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,159}")
_FILE_NAME = _KEY
_TASK_LABEL = "task"

LIVE_STATES = frozenset({"PENDING", "RUNNING", "BACKOFF", "STOPPING"})


class RestartPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`max` restarts after crashes, then FAILED; the wait doubles from `backoff_s` up to `backoff_s_max`.

    A process that stayed up for `forget_after_s` has its earlier crashes forgiven. One-shot processes are
    never restarted: who made the request decides. Neither is one that ends with one of `final_codes`: it has
    done what it was to do (0, SUCCEEDED), or says that another start would not help (FAILED).
    """

    max: int = 5
    backoff_s: float = 2.0
    backoff_s_max: float = 60.0
    forget_after_s: float = 600.0
    final_codes: tuple[int, ...] = ()


class ProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """`argv[0]` is `rtolap` or `spark-submit`, never a path; `labels` are the caller's own.

    A process that nobody has renewed for `lease_s` is unattended, and goes on; one that nobody has renewed
    for `orphan_s` is stopped. See docs/decisions/0042.

    Attributes:
        files: name → text that the agent writes for this generation, so that caller and agent need not share
            a disk; `{files}` at the start of an argument becomes their folder. They go with the next
            generation.
    """

    generation: int
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    lease_s: float = LEASE_S_DEFAULT
    orphan_s: float = ORPHAN_S_DEFAULT
    restart: RestartPolicy = RestartPolicy()
    one_shot: bool = False
    stop_grace_s: float = STOP_GRACE_S_DEFAULT
    labels: dict[str, str] = {}
    files: dict[str, str] = {}

    @property
    def keeps_exit(self) -> bool:
        """Does its exit code matter, so that it has to outlive the agent?"""
        return self.one_shot or bool(self.restart.final_codes)


class WaitingTask(msgspec.Struct, frozen=True):
    """The task of an orchestrator that waits for a process; it travels as one of the process's labels."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    def __str__(self) -> str:
        mapped = f", {self.map_index}" if self.map_index >= 0 else ""
        return f"task {self.task_id}{mapped} of {self.dag_id}, run {self.run_id}"

    def label(self) -> dict[str, str]:
        return {_TASK_LABEL: msgspec.json.encode(self).decode()}

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> WaitingTask | None:
        """Return the task that waits for the process; None if no task has started it."""
        label = labels.get(_TASK_LABEL)
        return None if label is None else decode_json(label, cls)


class GenerationRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    generation: int


class LastGeneration(msgspec.Struct, frozen=True):
    """The highest generation of a key, 0 for none, and its labels. Those of acknowledged processes count."""

    generation: int
    labels: dict[str, str] = {}


class Shutdown(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request to end the agent.

    Attributes:
        stop_processes: False lets the processes live on, and the next agent adopts them.
    """

    stop_processes: bool = True


class ProcessStep(msgspec.Struct, frozen=True):
    """A step in the life of a process. number: 1 for its first, without a gap, so that a follower tells new
    ones."""

    number: int
    at_ms: int
    event: str
    state: str
    reason: str


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` says why the state is what it is; `log_tail` holds the last lines once the process has ended.

    `exit_code` is negative for a signal and None while it is unknown.

    Attributes:
        lease_left_s: 0 for a live process that is unattended.
        steps: the last steps of its life, the oldest first.
    """

    key: str
    generation: int
    state: str  # PENDING | RUNNING | BACKOFF | STOPPING | STOPPED | SUCCEEDED | FAILED
    reason: str = ""
    pid: int | None = None
    started_ms: int | None = None
    changed_ms: int = 0
    restarts: int = 0
    exit_code: int | None = None
    one_shot: bool = False
    lease_left_s: float = 0.0
    argv: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    log_tail: tuple[str, ...] = ()
    steps: tuple[ProcessStep, ...] = ()

    @property
    def is_unattended(self) -> bool:
        return self.is_live and not self.lease_left_s

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES


class ProcessList(msgspec.Struct, frozen=True):
    processes: tuple[ProcessStatus, ...] = ()


def check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise DefinitionError(
            "not a process key",
            expected="1 to 160 of letters, digits and . _ + -, the first a letter or digit",
            found=repr(key[:200]),
        )
    return key


def check_files(files: dict[str, str]) -> None:
    size = sum(len(text) for text in files.values())
    if len(files) > FILES_MAX or size > FILES_BYTES_MAX:
        raise DefinitionError(
            "too much for one process",
            expected=f"at most {FILES_MAX} files of {FILES_BYTES_MAX} characters together",
            found=f"{len(files)} files of {size}",
        )
    for name in files:
        if not _FILE_NAME.fullmatch(name):
            raise DefinitionError("not a file name", expected="letters, digits and . _ + -", found=repr(name))

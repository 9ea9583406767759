"""Options that the agent's programs may be given, and their form: declared, everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rtolap.base.errors import DefinitionError


class Host(msgspec.Struct, frozen=True):
    """The parts of this host that a request may touch: the agent's own settings, never the caller's.

    jobs_dir       Spark jobs that may run
    data_dir       receivers keep their data below it
    object_store   the one whose segments are built
    spark_master   where builds run, beside `local`
    fleet_sources  the file of sources of brokers' metrics; None where the host declares none
    """

    jobs_dir: Path
    data_dir: Path
    object_store: str
    spark_master: str = "local[2]"
    fleet_sources: Path | None = None


Fits = Callable[[str, Host], bool]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_SIZE = re.compile(r"[0-9]{1,9}[kKmMgGtT]?[bB]?")
_LOCAL = re.compile(r"local(\[(\*|[0-9]{1,4})(,[0-9]{1,4})?\])?")
# Names no class, no jar, no interpreter, no file and no address but the driver's own.
_SPARK_SETTING = re.compile(
    r"spark\.("
    r"sql\.(adaptive\.(enabled|advisoryPartitionSizeInBytes|coalescePartitions\.\w+|skewJoin\.\w+)"
    r"|shuffle\.partitions|files\.(maxPartitionBytes|maxRecordsPerFile|openCostInBytes)"
    r"|autoBroadcastJoinThreshold|broadcastTimeout|parquet\.compression\.codec)"
    r"|(driver|executor)\.(memory|memoryOverhead|cores|instances|maxResultSize)"
    r"|driver\.(host|bindAddress|port)|blockManager\.port|cores\.max|default\.parallelism"
    r"|dynamicAllocation\.(enabled|minExecutors|maxExecutors|initialExecutors|executorIdleTimeout)"
    r"|shuffle\.service\.enabled|ui\.(enabled|port|showConsoleProgress)|network\.timeout|task\.maxFailures"
    r"|app\.name|yarn\.queue|kubernetes\.namespace|rtolap\.(rowsInMemoryMax|executorsRunPython))"
    r"=[^\x00-\x1f]{0,256}"
)


def _matches(pattern: re.Pattern[str]) -> Fits:
    return lambda value, host: pattern.fullmatch(value) is not None


def _below_data_dir(value: str, host: Host) -> bool:
    path, root = Path(value).resolve(), host.data_dir.resolve()
    return path != root and path.is_relative_to(root)


def _own_sources(value: str, host: Host) -> bool:
    return host.fleet_sources is not None and Path(value).resolve() == host.fleet_sources.resolve()


def _master(value: str, host: Host) -> bool:
    return value == host.spark_master or _LOCAL.fullmatch(value) is not None


_name, _number, _size = _matches(_NAME), _matches(_NUMBER), _matches(_SIZE)

RTOLAP_OPTIONS: Mapping[tuple[str, ...], Mapping[str, Fits]] = {
    ("receiver", "serve"): {
        "--id": _name,
        "--replica-set": _name,
        "--data-dir": _below_data_dir,
        **dict.fromkeys(
            (
                *("--port", "--metrics-port", "--flush-rows", "--flush-bytes", "--checkpoint-interval-s"),
                *("--fragments-max", "--merge-bytes-max", "--unbuilt-segments-max"),
                *("--disk-free-bytes-min", "--idle-after-s"),
            ),
            _number,
        ),
    },
    ("loader", "run"): {"--port": _number},
    ("sep", "serve"): {"--port": _number, "--metrics-port": _number, "--host": _name},
    ("fleet", "serve"): {
        "--cluster": _name,
        "--sources": _own_sources,
        **dict.fromkeys(
            ("--metrics-port", "--look-every-s", "--produce-p99-ms-max", "--produce-every-s"), _number
        ),
    },
    ("coordinator", "serve"): {},
    ("query", "serve"): dict.fromkeys(
        (
            *("--memory-mb", "--threads", "--queries-max", "--connections-max"),
            *("--login-timeout-s", "--idle-timeout-s"),
        ),
        _number,
    ),
    ("agent", "sleep"): {"--seconds": _number, "--exit-code": _number},
}
RTOLAP_NAMED = frozenset({("loader", "run"), ("sep", "serve")})  # commands with a name before their options

SPARK_OPTIONS: Mapping[str, Fits] = {
    "--master": _master,
    "--deploy-mode": _matches(re.compile("client|cluster")),
    "--name": _name,
    "--queue": _name,
    "--driver-memory": _size,
    "--executor-memory": _size,
    "--driver-cores": _number,
    "--executor-cores": _number,
    "--total-executor-cores": _number,
    "--num-executors": _number,
    "--conf": _matches(_SPARK_SETTING),
}
# What a process may be given beside the agent's own environment: nothing that names a file or a server.
ENVIRONMENT: Mapping[str, re.Pattern[str]] = {
    "RTOLAP_LOG_LEVEL": re.compile("DEBUG|INFO|WARNING|ERROR"),
    "RTOLAP_SESSION_TIMEOUT_S": _NUMBER,
    "AWS_REGION": _NAME,
    "AWS_DEFAULT_REGION": _NAME,
    "SPARK_LOCAL_IP": re.compile(r"[0-9a-fA-F.:]{1,45}"),
    "TZ": re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}"),
    "LANG": _NAME,
    "LC_ALL": _NAME,
}


def check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{what} refused", expected="a name of letters, digits and . _ -", found=repr(name)
        )


def check_options(what: str, words: Sequence[str], options: Mapping[str, Fits], host: Host) -> None:
    """`words`: option, value, option, value, … Raises DefinitionError."""
    for at in range(0, len(words), 2):
        option, value = words[at], words[at + 1] if at + 1 < len(words) else None
        fits = options.get(option)
        if fits is None or value is None:
            raise DefinitionError(
                f"option of {what} refused",
                expected=f"{', '.join(sorted(options)) or 'none'}, each with a value of its own",
                found=repr(option),
            )
        if not fits(value, host):
            raise DefinitionError(
                f"{option} of {what} refused",
                expected="a value that names no code, file or server but this host's own",
                found=repr(value.partition("=")[0] if option == "--conf" else value),
                action="set up the agent's host otherwise: its environment, or its spark-defaults.conf",
            )


def check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        pattern = ENVIRONMENT.get(name)
        if pattern is None or not pattern.fullmatch(value):
            raise DefinitionError(
                "environment addition refused",
                expected=f"one of {', '.join(sorted(ENVIRONMENT))} with a plain value",
                found=repr(name),
                action="what else the processes of this host need stands in the environment of its agent",
            )

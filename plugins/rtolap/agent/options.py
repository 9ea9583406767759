"""Options that the agent's programs may be given, and their form: declared, everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from rtolap.base.errors import DefinitionError


class Host(msgspec.Struct, frozen=True):
    """The parts of this host that a request may use: the agent's own settings, never the caller's.

    Attributes:
        jobs_dir: Folder of the Spark jobs that may run.
        data_dir: Folder below which receivers store their data.
        object_store: URI of the store whose segments are built.
        spark_master: Master on which builds run, besides `local`.
        spark_host: Address of this host at which Spark drivers listen and are called back. Empty: as the
            host's spark-defaults.conf says.
        fleet_sources: File of the sources of brokers' metrics. None where the host declares none.
    """

    jobs_dir: Path
    data_dir: Path
    object_store: str
    spark_master: str = "local[2]"
    spark_host: str = "127.0.0.1"
    fleet_sources: Path | None = None


Fits = Callable[[str, Host], bool]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_SIZE = re.compile(r"[0-9]{1,9}[kKmMgGtT]?[bB]?")
_LOCAL = re.compile(r"local(\[(\*|[0-9]{1,4})(,[0-9]{1,4})?\])?")
# Settings of Spark by name, and their values: none names a class, a jar, an interpreter, a file or an
# address, and none has anything listen. Values are plain: some reach command lines of a cluster's executors.
_SWITCH, _COUNT = "true|false", r"[0-9]{1,18}"
_SCALAR = r"true|false|-?[0-9]{1,18}(\.[0-9]{1,9})?[a-zA-Z]{0,8}"
_TEXT = r"[A-Za-z0-9][A-Za-z0-9 ._:+-]{0,127}"
_SPARK_SETTINGS = tuple(
    (re.compile(name), re.compile(value))
    for name, value in (
        (r"spark\.sql\.adaptive\.(enabled|advisoryPartitionSizeInBytes)", _SCALAR),
        (r"spark\.sql\.adaptive\.(coalescePartitions|skewJoin)\.enabled", _SWITCH),
        (r"spark\.sql\.adaptive\.coalescePartitions\.(initialPartitionNum|minPartitionNum)", _COUNT),
        (r"spark\.sql\.adaptive\.coalescePartitions\.(minPartitionSize|parallelismFirst)", _SCALAR),
        (r"spark\.sql\.adaptive\.skewJoin\.skewedPartition(Factor|ThresholdInBytes)", _SCALAR),
        (r"spark\.sql\.shuffle\.partitions", _COUNT),
        (r"spark\.sql\.files\.(maxPartitionBytes|maxRecordsPerFile|openCostInBytes)", _SCALAR),
        (r"spark\.sql\.(autoBroadcastJoinThreshold|broadcastTimeout)", _SCALAR),
        (r"spark\.sql\.parquet\.compression\.codec", r"[a-z0-9_]{1,16}"),
        (r"spark\.(driver|executor)\.(memory|memoryOverhead|cores|maxResultSize)", _SCALAR),
        (r"spark\.(executor\.instances|cores\.max|default\.parallelism|task\.maxFailures)", _COUNT),
        (r"spark\.dynamicAllocation\.(enabled|(min|max|initial)Executors|executorIdleTimeout)", _SCALAR),
        (r"spark\.shuffle\.service\.enabled", _SWITCH),
        (r"spark\.ui\.enabled", "false"),
        (r"spark\.ui\.showConsoleProgress", _SWITCH),
        (r"spark\.network\.timeout", _SCALAR),
        (r"spark\.(app\.name|yarn\.queue|kubernetes\.namespace)", _TEXT),
        (r"spark\.rtolap\.(rowsInMemoryMax|lookedAtInDriverBytesMax)", _COUNT),
        (r"spark\.rtolap\.executorsRunPython", _SWITCH),
    )
)


def _matches(pattern: re.Pattern[str]) -> Fits:
    return lambda value, host: pattern.fullmatch(value) is not None


def _spark_setting(value: str, host: Host) -> bool:
    name, _, given = value.partition("=")
    return any(
        known.fullmatch(name) is not None and fits.fullmatch(given) is not None
        for known, fits in _SPARK_SETTINGS
    )


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
    ("publish", "serve"): {"--metrics-port": _number},
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
    ("spark", "serve"): {"--memory-mb": _number, "--master": _master},
    ("agent", "sleep"): {"--seconds": _number, "--exit-code": _number},
}
RTOLAP_NAMED = frozenset(
    {("loader", "run"), ("sep", "serve"), ("publish", "serve")}
)  # commands with a name before their options

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
    "--conf": _spark_setting,
}
# What a process may be given beside the agent's own environment: nothing that names a file or a server.
ENVIRONMENT: Mapping[str, re.Pattern[str]] = {
    "RTOLAP_LOG_LEVEL": re.compile("DEBUG|INFO|WARNING|ERROR"),
    "RTOLAP_SESSION_TIMEOUT_S": _NUMBER,
    "AWS_REGION": _NAME,
    "AWS_DEFAULT_REGION": _NAME,
    "TZ": re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}"),
    "LANG": _NAME,
    "LC_ALL": _NAME,
}


def own_spark_options(options: Sequence[str], host: Host) -> tuple[str, ...]:
    """Return the options of spark-submit that are the host's alone, for a caller's checked `options`.

    Drivers listen at the host's address, serve no page, and take connections only from processes that know a
    secret of the job. Spark makes that secret itself, in memory, on all masters but standalone ones. Those
    have one of their own, which stands in the host's spark-defaults.conf.
    """
    settings = {"spark.ui.enabled": "false"}
    if host.spark_host:
        settings |= {"spark.driver.host": host.spark_host, "spark.driver.bindAddress": host.spark_host}
    master = dict(zip(options[::2], options[1::2], strict=True)).get("--master", "")
    if not master.startswith("spark://"):
        settings["spark.authenticate"] = "true"
    return tuple(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))


def spark_environment(host: Host) -> dict[str, str]:
    """Return variables of this host's drivers: their address, for the parts that have no setting of their
    own."""
    return {"SPARK_LOCAL_IP": host.spark_host} if host.spark_host else {}


def check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{what} refused", expected="a name of letters, digits and . _ -", found=repr(name)
        )


def check_options(what: str, words: Sequence[str], options: Mapping[str, Fits], host: Host) -> None:
    """Check `words`: option, value, option, value, … Raises DefinitionError."""
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

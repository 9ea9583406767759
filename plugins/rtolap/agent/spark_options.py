"""Options of spark-submit: those that a caller may give, and those that are the host's alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rtolap.agent.forms import Fits, is_master, is_name, is_number, is_size, matches
from rtolap.agent.host import Host
from rtolap.base.errors import DefinitionError

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
        (r"spark\.log\.structuredLogging\.enabled", _SWITCH),
        (r"spark\.network\.timeout", _SCALAR),
        (r"spark\.(app\.name|yarn\.queue|kubernetes\.namespace)", _TEXT),
        (r"spark\.rtolap\.(rowsInMemoryMax|lookedAtInDriverBytesMax)", _COUNT),
        (r"spark\.rtolap\.executorsRunPython", _SWITCH),
    )
)
# A driver on a cluster is waited for, and only a caller starts it again, as a new attempt.
_ON_CLUSTER = {
    "spark.yarn.submit.waitAppCompletion": "true",
    "spark.yarn.maxAppAttempts": "1",
    "spark.kubernetes.submission.waitAppCompletion": "true",
}
_CLUSTER_MODE = "cluster"
NAMESPACE = "spark.kubernetes.namespace="
_WITH_CLUSTER_MODE = re.compile(r"yarn|k8s://.+")


def _spark_setting(value: str, host: Host) -> bool:
    name, _, given = value.partition("=")
    return host.spark_allowed.allows_setting(name, given) or any(
        known.fullmatch(name) is not None and fits.fullmatch(given) is not None
        for known, fits in _SPARK_SETTINGS
    )


SPARK_OPTIONS: Mapping[str, Fits] = {
    "--master": is_master,
    "--deploy-mode": matches(re.compile("client|cluster")),
    "--name": is_name,
    "--queue": is_name,
    "--driver-memory": is_size,
    "--executor-memory": is_size,
    "--driver-cores": is_number,
    "--executor-cores": is_number,
    "--total-executor-cores": is_number,
    "--num-executors": is_number,
    "--conf": _spark_setting,
    "--jars": lambda value, host: host.spark_allowed.allows_jars(value),
}


def is_cluster_mode(options: Sequence[str]) -> bool:
    """Return True where the driver of a submission with these options runs on the cluster."""
    return given_options(options).get("--deploy-mode") == _CLUSTER_MODE


def check_cluster_mode(options: Sequence[str]) -> None:
    """Raise DefinitionError where Spark has no cluster mode for a Python job on the named master."""
    master = given_options(options).get("--master", "")
    if is_cluster_mode(options) and not _WITH_CLUSTER_MODE.fullmatch(master):
        raise DefinitionError(
            "--deploy-mode of spark-submit refused",
            expected="--master yarn or k8s://…: on others Spark runs Python jobs in client mode only",
            found=f"cluster on {master or 'a master that is not named'}",
            action="submit in client mode: the driver is then a process of this host",
        )
    named = [word for word in options if word.startswith(NAMESPACE)]
    if is_cluster_mode(options) and master != "yarn" and not named:
        raise DefinitionError(
            "job in cluster mode refused",
            expected=f"--conf {NAMESPACE}…, in which its driver is found again",
            found="none",
            action="name the namespace in the connection",
        )


def own_spark_options(options: Sequence[str], host: Host) -> tuple[str, ...]:
    """Return the options of spark-submit that are the host's alone, for a caller's checked `options`.

    Drivers of this host listen at the host's address, serve no page, and take connections only from processes
    that know a secret of the job. Spark makes that secret itself, in memory, on all masters but standalone
    ones. Those have one of their own, which stands in the host's spark-defaults.conf.
    """
    settings = {"spark.ui.enabled": "false"}
    if is_cluster_mode(options):  # where its driver listens, the cluster says
        settings |= _ON_CLUSTER
    elif host.spark_host:
        settings |= {"spark.driver.host": host.spark_host, "spark.driver.bindAddress": host.spark_host}
    master = given_options(options).get("--master", "")
    if not master.startswith("spark://"):
        settings["spark.authenticate"] = "true"
    return tuple(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))


def spark_environment(host: Host) -> dict[str, str]:
    """Return variables of this host's drivers: their address, for the parts that have no setting of their
    own."""
    return {"SPARK_LOCAL_IP": host.spark_host} if host.spark_host else {}


def job_position(argv: Sequence[str]) -> int:
    """Return the position of the job in a command, behind options with a value each.

    It is beyond the end where there is no job.
    """
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2
    return position


def given_options(options: Sequence[str]) -> dict[str, str]:
    """Return the value of each option; of one that is given again, the last."""
    return dict(zip(options[::2], options[1::2], strict=True))

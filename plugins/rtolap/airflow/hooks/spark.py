"""SparkCommandHook lets the Spark provider's hook compose how a build is submitted; the agent submits it.

The provider's own way to submit is not used: a build is a process of an agent, which outlives workers, and
which runs what its allow-list names and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from rtolap.base.errors import DefinitionError, Refused
from rtolap.base.settings import Settings

SPARK_DEFAULT = "spark_default"
CONF_KEY = "conf"
JARS_KEY = "jars"
_EXTRA = frozenset(("queue", "deploy-mode", "namespace", "spark-binary", CONF_KEY, JARS_KEY))


def spark_options(
    name: str, conf: Mapping[str, str], *, conn_id: str = SPARK_DEFAULT, master: str | None = None
) -> list[str]:
    """Return the options of spark-submit: the connection's master, deploy mode, queue and namespace, and what
    its extra says of `conf` (an object), overridden by the caller's, and `jars` (a list).

    `master` replaces the connection's. The default connection may be missing: then builds run where
    RTOLAP_SPARK_MASTER says. Raises DefinitionError for an extra that cannot be followed; whether a setting
    or a jar is allowed, the agent says.
    """
    try:
        extra: Mapping[str, Any] = BaseHook.get_connection(conn_id).extra_dejson
    except AirflowNotFoundException:
        if conn_id != SPARK_DEFAULT:
            raise
        return ["--master", master or Settings().spark_master, *_conf_options(conf), "--name", name]
    unknown = sorted(set(extra) - _EXTRA)
    of_connection = extra.get(CONF_KEY, {})
    jars = extra.get(JARS_KEY, [])
    misfits = list(unknown)
    if not isinstance(of_connection, dict):
        misfits.append(CONF_KEY)
    if not isinstance(jars, list) or not all(isinstance(jar, str) for jar in jars):
        misfits.append(JARS_KEY)
    if misfits:
        raise DefinitionError(
            f"connection {conn_id} says what a build cannot follow",
            expected=f"{', '.join(sorted(_EXTRA))} in its extra; {CONF_KEY} an object, {JARS_KEY} a list",
            found=", ".join(misfits),
            action="principals and keytabs belong to the agent's host",
        )
    hook = SparkCommandHook(conn_id, name, {**of_connection, **conf}, master, jars)
    return hook.options()


class SparkCommandHook(SparkSubmitHook):
    """A hook that composes the command and starts nothing."""

    def __init__(
        self, conn_id: str, name: str, conf: Mapping[str, Any], master: str | None, jars: Sequence[str] = ()
    ) -> None:
        self._master = master
        super().__init__(
            conn_id=conn_id, name=name, conf=dict(sorted(conf.items())), jars=",".join(jars) or None
        )

    def options(self) -> list[str]:
        arguments: list[str] = self._build_spark_common_args()
        return arguments

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        raise Refused("builds are not submitted here", action="start them as processes of an agent")

    def _resolve_connection(self) -> dict[str, Any]:
        resolved: dict[str, Any] = super()._resolve_connection()
        return resolved if self._master is None else {**resolved, "master": self._master}


def _conf_options(conf: Mapping[str, str]) -> list[str]:
    return [word for name, value in sorted(conf.items()) for word in ("--conf", f"{name}={value}")]

"""The variables that the stack's processes inherit from the shell that starts them, and those left out.

A shell of somebody who works with Spark and Airflow says where others of them are, and how they are set up.
The stack brings its own. It leaves out what would make it run another Spark, set up Airflow as another one,
or send its builds to another cluster, by a connection of the same name.

Proxies stay: what leaves the machine goes through them. What stays on it does not.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

_OTHERS = re.compile(
    r"SPARK_HOME|SPARK_DIST_CLASSPATH|SPARK_ENV_LOADED|SPARK_SCALA_VERSION|SPARK_SUBMIT_OPTS|PYSPARK_\w+"
    r"|AIRFLOW_HOME|AIRFLOW_CONFIG|AIRFLOW_CONN_\w+"
    r"|AIRFLOW__(?:API|API_AUTH|CELERY|CELERY_\w+|CORE|DAG_PROCESSOR|DATABASE|EDGE|EXECUTION_API|FAB|KUBERNETES\w*"
    r"|LOGGING|SCHEDULER|SECRETS|TRIGGERER|WEBSERVER|WORKERS)__\w+"
)
# Of a cluster, which is meant where RTOLAP_SPARK_MASTER names one. A local master builds in files.
_OF_CLUSTERS = re.compile(r"SPARK_CONF_DIR|HADOOP_\w+|YARN_CONF_DIR|HIVE_CONF_DIR")
_MASTER = "RTOLAP_SPARK_MASTER"

_ASCII_LOCALES = ("C", "POSIX")
_LOOPBACK = ("127.0.0.1", "localhost")
_PORTS = {"http": 80, "https": 443}


def inherited() -> dict[str, str]:
    """Return the variables of this process that those of the stack have, too."""
    left_out = set(of_others())
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **_without_proxies(), **_with_all_letters()}


def of_others() -> list[str]:
    """Return the names of this process's variables that configure another Spark, Airflow or Hadoop."""
    patterns = (_OTHERS,) if os.environ.get(_MASTER) else (_OTHERS, _OF_CLUSTERS)
    return sorted(name for name in os.environ if any(each.fullmatch(name) for each in patterns))


def java_proxy_options() -> list[str]:
    """Return the options by which a program of Java uses the environment's proxies: it reads no variables.

    Java takes no credentials from options: a proxy that asks for some refuses it.
    """
    options = []
    for scheme, url in getproxies_environment().items():
        parts = urlsplit(url if "//" in url else f"//{url}")
        if scheme in _PORTS and parts.hostname:
            port = parts.port or _PORTS[parts.scheme or "http"]
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={port}"]
    direct = [pattern for host in (*_exceptions(), *_LOOPBACK) for pattern in _patterns(host)]
    return [*options, f"-Dhttp.nonProxyHosts={'|'.join(direct)}"] if options else []


def _without_proxies() -> dict[str, str]:
    """Return the variables by which libraries that read the proxies reach this machine directly."""
    hosts = [host for host in _exceptions() if host not in _LOOPBACK]
    text = ",".join([*hosts, *_LOOPBACK])
    return {"NO_PROXY": text, "no_proxy": text}


def _with_all_letters() -> dict[str, str]:
    """Return the variable by which names of files have all letters, where the locale knows some only.

    Java 17 cannot open other files then. Where nothing names a locale, Python says UTF-8 (PEP 538).
    """
    return {"LC_ALL": "C.UTF-8"} if os.environ.get("LC_ALL") in _ASCII_LOCALES else {}


def _exceptions() -> list[str]:
    listed = getproxies_environment().get("no", "")
    return [host.strip() for host in listed.split(",") if host.strip()]


def _patterns(host: str) -> list[str]:
    """Return a host or domain of `NO_PROXY` as Java writes it: a domain stands for all hosts in it, too."""
    if host == "*":
        return ["*"]
    name = host.removeprefix("*").removeprefix(".")
    return [name, f"*.{name}"]

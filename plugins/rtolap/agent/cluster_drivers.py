"""Drivers that run on a cluster, where `spark-submit --deploy-mode cluster` only waits for them.

Such a process can end while its driver lives on, and a driver without anybody who waits for it would build
beside its successor. So each is submitted under a name that the agent makes up and notes first, and a process
is over only when the cluster manager knows no living driver of that name:

    yarn         a tag of the application; the driver is found and killed by `yarn application`
    kubernetes   the name of the driver's pod; found and deleted by `spark-submit --status` and `--kill`

Both commands are those that pyspark brings, so they authenticate as the submission does, by the host's own
configuration (HADOOP_CONF_DIR, spark-defaults.conf).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from rtolap.agent.spark_options import NAMESPACE, given_options, job_position
from rtolap.base.errors import Unavailable

log = logging.getLogger(__name__)

_COMMAND_TIMEOUT_S = 120.0
_ROUNDS_MAX = 5  # a driver that was killed is gone when it is looked for again
_TAIL_LINES = 5
_YARN_CLIENT = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_YARN_LIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
_APPLICATION = re.compile(r"^\s*(application_[0-9]+_[0-9]+)\s", re.MULTILINE)
_POD_PHASE = re.compile(r"phase: *(Pending|Running|Unknown)")


def new_name() -> str:
    """Return a name that no other driver has. It fits YARN's tags and Kubernetes' names of pods."""
    return f"rtolap-{uuid.uuid4().hex}"


def named(argv: Sequence[str], name: str, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the submission `argv` with the name of its driver, and variables of the driver's environment."""
    settings = {"spark.yarn.tags": name, "spark.kubernetes.driver.pod.name": name}
    for variable, value in (variables or {}).items():
        settings[f"spark.yarn.appMasterEnv.{variable}"] = value
        settings[f"spark.kubernetes.driverEnv.{variable}"] = value
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    # In front of the job, behind the caller's options: of two values of a setting the last one counts.
    job = job_position(argv)
    return (*argv[:job], *words, *argv[job:])


async def kill(argv: Sequence[str], name: str, env: Mapping[str, str]) -> None:
    """Kill what is left of the driver that `argv` submitted under this name, and return once it is gone.

    A submission that was under way when its process was killed has reached the manager, or never will, by
    the time at which the first of these commands has started.

    Args:
        argv: the submission, as it was resolved.
        env: what it had in its environment beside the agent's own.

    Raises Unavailable where the manager does not answer, or the driver does not go.
    """
    options = argv[1 : job_position(argv)]
    bin_dir = Path(argv[0]).parent
    find, kill_ = (
        (_yarn_drivers, _kill_on_yarn)
        if given_options(options).get("--master") == "yarn"
        else (_kubernetes_drivers, _kill_on_kubernetes)
    )
    for _ in range(_ROUNDS_MAX):
        living = await find(bin_dir, options, name, env)
        if not living:
            return
        log.warning("killing %s, driver %s", ", ".join(living), name)
        await kill_(bin_dir, options, living, env)
    raise Unavailable(
        f"driver {name} does not go",
        found=", ".join(living),
        action="look at the cluster manager: it was asked to kill this driver several times",
    )


async def _yarn_drivers(bin_dir: Path, _: Sequence[str], name: str, env: Mapping[str, str]) -> list[str]:
    wanted = ("-list", "-appTags", name, "-appStates", _YARN_LIVE)
    output = await _run((str(bin_dir / "spark-class"), _YARN_CLIENT, "application", *wanted), env)
    return _APPLICATION.findall(output)


async def _kill_on_yarn(
    bin_dir: Path, _: Sequence[str], living: Sequence[str], env: Mapping[str, str]
) -> None:
    for application in living:
        command = (str(bin_dir / "spark-class"), _YARN_CLIENT, "application", "-kill", application)
        await _run(command, env)


async def _kubernetes_drivers(
    bin_dir: Path, options: Sequence[str], name: str, env: Mapping[str, str]
) -> list[str]:
    output = await _run(_on_kubernetes(bin_dir, options, "--status", name), env)
    return [name] if _POD_PHASE.search(output) else []


async def _kill_on_kubernetes(
    bin_dir: Path, options: Sequence[str], living: Sequence[str], env: Mapping[str, str]
) -> None:
    for name in living:
        await _run(_on_kubernetes(bin_dir, options, "--kill", name), env)


def _on_kubernetes(bin_dir: Path, options: Sequence[str], what: str, name: str) -> tuple[str, ...]:
    (*_, namespace) = (word[len(NAMESPACE) :] for word in options if word.startswith(NAMESPACE))
    master = given_options(options)["--master"]
    return (str(bin_dir / "spark-submit"), "--master", master, what, f"{namespace}:{name}")


async def _run(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Run a command of the manager's client and return what it wrote. Raises Unavailable."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_COMMAND_TIMEOUT_S):
            output = (await process.communicate())[0].decode(errors="replace")
    except TimeoutError:
        raise Unavailable(
            "the cluster manager does not answer",
            expected=f"an answer within {_COMMAND_TIMEOUT_S:g} s",
            action="a driver may still run there; it is looked for again",
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise Unavailable(
            "the cluster manager's client failed",
            found=f"exit code {process.returncode}: " + " / ".join(output.splitlines()[-_TAIL_LINES:]),
            action="a driver may still run there; it is looked for again",
        )
    return output

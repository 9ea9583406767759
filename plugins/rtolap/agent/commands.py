"""The allow-list: which argument vectors the agent turns into processes, and how.

A caller names a program, never a path. `rtolap` runs this very package with this very interpreter, and only
the sub-commands and options that `options` declares; `spark-submit` runs pyspark's own script on one of the
files in the jobs folder, and our own jobs on specifications that were checked. There is no shell
anywhere. Whoever has the cluster's token can ask for what is listed, on this host's own store and folders,
and for nothing else.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import rtolap
from rtolap.agent.host import Host
from rtolap.agent.job_specs import FILE, JOBS, check_arguments, files_named
from rtolap.agent.options import (
    RTOLAP_NAMED,
    RTOLAP_OPTIONS,
    check_environment,
    check_name,
    check_options,
)
from rtolap.agent.spark_options import (
    SPARK_OPTIONS,
    check_cluster_mode,
    is_cluster_mode,
    job_position,
    own_spark_options,
    spark_environment,
)
from rtolap.base.errors import DefinitionError
from rtolap.protocols.agent.messages import ProcessSpec

_SPARK = "spark-submit"
SERVED_JOB, _SERVING_JOB = "build_segment.py", "serve_builds.py"
_LAUNCHER = Path(__file__).with_name("warm_launcher.py")
Resolver = Callable[[Sequence[str]], tuple[str, ...]]


def runs_on_cluster(spec: ProcessSpec) -> bool:
    """Return True where the process only waits for a driver on a cluster."""
    argv = spec.argv
    return argv[0] == _SPARK and is_cluster_mode(argv[1 : job_position(argv)])


class Commands:
    """Turns a caller's argv into the one that is executed, or raises DefinitionError."""

    def __init__(self, host: Host, extra: Mapping[str, Resolver] | None = None) -> None:
        self._host = host
        self._jobs_dir = host.jobs_dir.resolve()
        self._programs: dict[str, Resolver] = {
            "rtolap": self._rtolap,
            _SPARK: self._spark,
            **(extra or {}),
        }

    def check(self, spec: ProcessSpec) -> tuple[str, ...]:
        """Return the command of a new request, its environment and files checked as well."""
        argv = self.resolve(spec.argv)
        if not spec.one_shot and runs_on_cluster(spec):
            raise DefinitionError("job in cluster mode refused", expected="a one-shot process")
        check_environment(spec.env)
        if self._programs[spec.argv[0]] == self._spark:
            job = job_position(spec.argv)
            check = JOBS.get(spec.argv[job])
            if check is not None:
                check_arguments(spec.argv[job + 1 :], spec.files)
                for text in (spec.files[name] for name in files_named(spec.argv[job + 1 :])):
                    check(text, self._host)
        return argv

    def resolve(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command itself; of a process that is started again, whose files were checked when they
        came.
        """
        if any("\0" in argument for argument in argv):
            raise DefinitionError("command refused", expected="arguments without NUL bytes")
        resolver = self._programs.get(argv[0]) if argv else None
        if resolver is None:
            raise DefinitionError(
                "command refused",
                expected=f"one of {', '.join(sorted(self._programs))} as the program",
                found=repr(argv[0]) if argv else "an empty command",
                action="the agent runs its allow-list only",
            )
        return resolver(argv[1:])

    def environment(self) -> dict[str, str]:
        """Return the environment of every child: this interpreter and this package, whatever the agent was
        started from."""
        package_root = str(Path(__file__).parents[2])
        known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        return {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys((package_root, *known))),
            "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **spark_environment(self._host),
        }

    def _spark(self, arguments: Sequence[str]) -> tuple[str, ...]:
        position = job_position((_SPARK, *arguments)) - 1
        options = arguments[:position]
        check_options(_SPARK, options, SPARK_OPTIONS, self._host)
        check_cluster_mode(options)
        if position >= len(arguments):
            raise DefinitionError("spark-submit without a job", expected=f"a file in {self._jobs_dir.name}/")
        name, rest = arguments[position], arguments[position + 1 :]
        job = (self._jobs_dir / name).resolve()
        if job.parent != self._jobs_dir or job.suffix != ".py" or not job.is_file() or job.name != name:
            raise DefinitionError(
                "Spark job refused",
                expected=f"the name of a Python file in {self._jobs_dir.name}/",
                found=repr(name),
            )
        if name in JOBS:
            check_arguments(rest)
        own = own_spark_options(options, self._host)
        if is_cluster_mode(options):
            own, rest = (*own, *_sent_along(rest)), [FILE.sub(r"\1", argument) for argument in rest]
        command = (str(_spark_submit()), *options, *own, str(job), *rest)
        if name != SERVED_JOB or self._host.spark_warm_s <= 0 or is_cluster_mode(options):
            return command
        return (*self._launcher(), "--", *command)

    def _launcher(self) -> tuple[str, ...]:
        """Return the words before a command whose driver may be one that waits."""
        folder = self._host.data_dir / "agent" / "spark"
        serving = self._jobs_dir / _SERVING_JOB
        words = (str(folder), f"{self._host.spark_warm_s:g}", str(serving), rtolap.__version__)
        return (sys.executable, "-I", "-S", str(_LAUNCHER), *words)

    def _rtolap(self, arguments: Sequence[str]) -> tuple[str, ...]:
        command, rest = tuple(arguments[:2]), list(arguments[2:])
        options = RTOLAP_OPTIONS.get(command)
        if options is None:
            raise DefinitionError(
                "rtolap sub-command refused",
                expected=f"one of {', '.join(' '.join(command) for command in RTOLAP_OPTIONS)}",
                found=repr(" ".join(command)),
            )
        if command in RTOLAP_NAMED:
            check_name(" ".join(command), rest.pop(0) if rest else "")
        check_options(" ".join(command), rest, options, self._host)
        # Not the `rtolap` script: it need not be on this process's PATH.
        return (sys.executable, "-c", "from rtolap.cli.main import main; main()", *arguments)


def _sent_along(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the options that send the request's file along. The driver finds it in its working folder."""
    files = [argument for argument in arguments if FILE.fullmatch(argument)]
    if len(files) > 1:
        raise DefinitionError(
            "job in cluster mode refused", expected="at most one file of the request", found=len(files)
        )
    return ("--files", *files) if files else ()


def _spark_submit() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DefinitionError(
            "spark-submit cannot run here", expected="pyspark beside the agent", action="pip install pyspark"
        )
    return Path(spec.origin).parent / "bin" / "spark-submit"

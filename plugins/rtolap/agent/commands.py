"""The allow-list: which argument vectors the agent turns into processes, and how.

A caller names a program, never a path. `rtolap` runs this very package with this very interpreter, and only
the sub-commands below; `spark-submit` runs pyspark's own script on one of the files in the jobs folder, with
options that cannot load code from elsewhere. There is no shell anywhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rtolap.base.errors import DefinitionError

Resolver = Callable[[Sequence[str]], tuple[str, ...]]

RTOLAP_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("receiver", "serve"),
    ("loader", "run"),
    ("coordinator", "serve"),
    ("query", "serve"),
    ("agent", "sleep"),
)
SPARK_OPTIONS = frozenset(
    {
        "--master",
        "--deploy-mode",
        "--name",
        "--queue",
        "--driver-memory",
        "--driver-cores",
        "--executor-memory",
        "--executor-cores",
        "--total-executor-cores",
        "--num-executors",
        "--conf",
    }
)
# Everything that names classes, jars, Java options or interpreters stays out.
_SPARK_CONF = re.compile(
    r"spark\.(sql\.(?!extensions|catalog|streaming|queryExecutionListeners|optimizer|warehouse)[\w.]+"
    r"|(driver|executor)\.(memory|memoryOverhead|cores|instances|host|bindAddress|port|maxResultSize)"
    r"|cores\.max|default\.parallelism|dynamicAllocation\.[\w.]+|shuffle\.(partitions|service\.enabled)"
    r"|ui\.(enabled|port|showConsoleProgress)|local\.dir|network\.timeout|task\.maxFailures|app\.name"
    r"|hadoop\.fs\.(s3a\.(endpoint|path\.style\.access|connection\.ssl\.enabled)|defaultFS)"
    r"|yarn\.queue|kubernetes\.(namespace|container\.image))=.*",
    re.DOTALL,
)
# What a child may be given beside the agent's own environment; never a loader or an interpreter path.
_ENV = re.compile(r"(RTOLAP|AWS|KAFKA|HADOOP)_[A-Z0-9_]+|SPARK_LOCAL_(IP|DIRS)|TZ|LANG|LC_ALL")


class Commands:
    """Turns a caller's argv into the one that is executed, or raises DefinitionError."""

    def __init__(self, jobs_dir: Path, extra: Mapping[str, Resolver] | None = None) -> None:
        self._jobs_dir = jobs_dir.resolve()
        self._programs: dict[str, Resolver] = {
            "rtolap": _rtolap,
            "spark-submit": self._spark,
            **(extra or {}),
        }

    def resolve(self, argv: Sequence[str]) -> tuple[str, ...]:
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

    def check_env(self, env: Mapping[str, str]) -> None:
        for name, value in env.items():
            if not _ENV.fullmatch(name) or "\0" in value:
                raise DefinitionError(
                    "environment addition refused",
                    expected="RTOLAP_*, AWS_*, KAFKA_*, HADOOP_*, SPARK_LOCAL_*, TZ, LANG or LC_ALL",
                    found=repr(name),
                )

    def environment(self) -> dict[str, str]:
        """For every child: this interpreter and this package, whatever the agent was started from."""
        package_root = str(Path(__file__).parents[2])
        known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        return {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys((package_root, *known))),
            "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def _spark(self, arguments: Sequence[str]) -> tuple[str, ...]:
        options: list[str] = []
        position = 0
        while position < len(arguments) and arguments[position].startswith("-"):
            option = arguments[position]
            value = arguments[position + 1] if position + 1 < len(arguments) else None
            if option not in SPARK_OPTIONS or value is None:
                raise DefinitionError(
                    "spark-submit option refused",
                    expected=f"{', '.join(sorted(SPARK_OPTIONS))}, each with a value",
                    found=repr(option),
                )
            if option == "--conf" and not _SPARK_CONF.fullmatch(value):
                raise DefinitionError(
                    "Spark setting refused",
                    expected="a setting of sizes, parallelism, network or storage",
                    found=repr(value.partition("=")[0]),
                    action="put other settings into the agent host's spark-defaults.conf",
                )
            options += (option, value)
            position += 2
        if position == len(arguments):
            raise DefinitionError("spark-submit without a job", expected=f"a file in {self._jobs_dir.name}/")
        job = (self._jobs_dir / arguments[position]).resolve()
        if job.parent != self._jobs_dir or job.suffix != ".py" or not job.is_file():
            raise DefinitionError(
                "Spark job refused",
                expected=f"the name of a Python file in {self._jobs_dir.name}/",
                found=repr(arguments[position]),
            )
        return (str(_spark_submit()), *options, str(job), *arguments[position + 1 :])


def _rtolap(arguments: Sequence[str]) -> tuple[str, ...]:
    if tuple(arguments[:2]) not in RTOLAP_COMMANDS:
        raise DefinitionError(
            "rtolap sub-command refused",
            expected=f"one of {', '.join(' '.join(command) for command in RTOLAP_COMMANDS)}",
            found=repr(" ".join(arguments[:2])),
        )
    # Not the `rtolap` script: it need not be on this process's PATH.
    return (sys.executable, "-c", "from rtolap.cli.main import main; main()", *arguments)


def _spark_submit() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DefinitionError(
            "spark-submit cannot run here", expected="pyspark beside the agent", action="pip install pyspark"
        )
    return Path(spec.origin).parent / "bin" / "spark-submit"

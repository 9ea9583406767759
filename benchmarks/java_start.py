"""Measure what the archives of classes save: processor time of starting ZooKeeper, Kafka and a small Spark
build.

    python -m benchmarks.java_start [--rounds 3] [--json]

Each is started with its archive and without, in turns; figures are medians, in seconds of processor time
until a server answers, or until the build has ended. Processor time rather than time by the clock: other work
on the machine changes it little. `ratio` is the build's, with over without.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
from rtolap.stack.artifacts import JavaArtifacts, java_artifacts
from rtolap.stack.class_recording import make_archives, run_build
from rtolap.stack.java import archive_flags, spark_class_path
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.kafka import kafka_spec
from rtolap.stack.servers.zookeeper import zookeeper_spec
from rtolap.stack.spec import ProcessSpec

_ARCHIVE_FLAG = "-XX:SharedArchiveFile"


def server_s(spec: ProcessSpec, archived: bool) -> float:
    if not archived:
        spec = replace(spec, argv=tuple(word for word in spec.argv if not word.startswith(_ARCHIVE_FLAG)))
    server = ManagedProcess(spec)
    try:
        server.start()
        used = psutil.Process(server.pid()).cpu_times()
        return float(used.user + used.system)
    finally:
        server.stop()


def build_s(folder: Path, flags: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_build(folder, flags)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def programs(artifacts: JavaArtifacts) -> dict[str, Callable[[Path, bool], float]]:
    def zookeeper(folder: Path, archived: bool) -> float:
        return server_s(zookeeper_spec(artifacts, folder, free_port()), archived)

    def kafka(folder: Path, archived: bool) -> float:
        port = free_port()
        return server_s(kafka_spec(artifacts, folder, port, free_port({port})), archived)

    def build(folder: Path, archived: bool) -> float:
        return build_s(folder, archive_flags("spark", artifacts.java, spark_class_path()) if archived else ())

    return {"zookeeper": zookeeper, "kafka": kafka, "build": build}


def run(rounds: int) -> dict[str, object]:
    make_archives()
    found: dict[str, dict[str, float]] = {}
    for name, start in programs(java_artifacts()).items():
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for archived, figures in times.items():
                with tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder:
                    figures.append(start(Path(folder) / name, archived))
        found[name] = {
            "archived_s": round(statistics.median(times[True]), 2),
            "plain_s": round(statistics.median(times[False]), 2),
        }
    return {
        **found,
        "cores": os.cpu_count(),
        "ratio": found["build"]["archived_s"] / found["build"]["plain_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = run(arguments.rounds)
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, figure in result.items():
            print(f"{name:10} {figure}")


if __name__ == "__main__":
    main()

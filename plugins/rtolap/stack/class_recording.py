"""Makes the archives of classes: each by a run of the program that it is for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rtolap.base.errors import NotFound, ProcessFailed
from rtolap.stack.artifacts import java_artifacts
from rtolap.stack.inherited import inherited
from rtolap.stack.java import LEAN_FLAGS, archive_path, hadoop_uri, option_string, spark_class_path
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.kafka import kafka_spec
from rtolap.stack.servers.zookeeper import zookeeper_spec
from rtolap.stack.spec import ProcessSpec

_REHEARSAL = "rtolap.cubes.build.rehearsal"  # a target of spark-submit: never imported here
_TIMEOUT_S = 300.0


def make_archives(tell: Callable[[str], None] = lambda text: None) -> None:
    """Make the missing archives, some seconds each. `tell` is called with a text before each of them.

    Raises ProcessFailed: a program ended with an error, or wrote no archive.
    """
    artifacts = java_artifacts()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rtolap-archives-") as name:
        folder = Path(name)
        zookeeper = zookeeper_spec(artifacts, folder / "zookeeper", port)
        kafka = kafka_spec(artifacts, folder / "kafka", free_port({port}), free_port({port}))
        for program, class_path, run in (
            ("zookeeper", artifacts.zookeeper, lambda flag: _run_server(zookeeper, flag)),
            ("kafka", artifacts.kafka, lambda flag: _run_server(kafka, flag)),
            ("spark", spark_class_path(), lambda flag: run_build(folder / "spark", [flag])),
        ):
            archive = archive_path(program, artifacts.java, class_path)
            if not archive.is_file():
                tell(f"recording the classes of {program}")
                _record(archive, run)


def _record(archive: Path, run: Callable[[str], None]) -> None:
    """Record an archive under another name first, so that an archive that exists is whole."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="recording-") as name:
        made = Path(name) / archive.name
        run(f"-XX:ArchiveClassesAtExit={made}")
        if not made.is_file():
            raise ProcessFailed(f"no archive of classes was written for {archive.stem}")
        os.replace(made, archive)


def _run_server(spec: ProcessSpec, flag: str) -> None:
    """Run the server once. It writes the archive as it ends."""
    recorded = replace(spec, argv=(spec.argv[0], flag, *spec.argv[1:]), stop_timeout_s=_TIMEOUT_S)
    server = ManagedProcess(recorded)
    try:
        server.start()
    finally:
        server.stop()


def run_build(folder: Path, flags: Sequence[str]) -> None:
    """Run a small build as a process, below `folder`, with these flags of java beside the usual ones."""
    found = importlib.util.find_spec(_REHEARSAL)
    if found is None or found.origin is None:
        raise NotFound("the rehearsal of builds is not installed", expected=_REHEARSAL)
    submit = Path(sys.executable).with_name("spark-submit")
    options = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    options += ["--conf", f"spark.sql.warehouse.dir={hadoop_uri(folder / 'warehouse')}"]
    environment = {
        **inherited(),
        "SPARK_SUBMIT_OPTS": option_string((*LEAN_FLAGS, *flags)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    try:
        done = subprocess.run(
            [str(submit), *options, found.origin, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessFailed(f"a rehearsed build took longer than {_TIMEOUT_S:g} s") from error
    if done.returncode:
        raise ProcessFailed("a rehearsed build failed", found=done.stdout[-2000:])

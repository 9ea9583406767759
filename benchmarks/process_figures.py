"""Processor time, memory and files of the services that a benchmark has started."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import psutil
from rtolap.cubes.format.fragment import SUFFIX as FRAGMENT_SUFFIX
from rtolap.stack.process import ManagedProcess

CPU_NOTED_S = 0.25


def service_process(word: str) -> psutil.Process:
    """Return the process whose command line contains `word serve`."""
    return child_process(f"{word} serve")


def child_process(words: str) -> psutil.Process:
    """Return the child whose command line contains these words."""
    return next(child for child in psutil.Process().children() if words in " ".join(child.cmdline()))


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class CpuWatch:
    """Records the processor time that processes have used, until `stop`. One that has ended uses no more."""

    def __init__(self, processes: Mapping[str, psutil.Process]) -> None:
        self._processes = dict(processes)
        self._at_ns: list[int] = []
        self._used_s: dict[str, list[float]] = {word: [] for word in processes}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._note()

    def share(self, word: str, from_ns: int, until_ns: int) -> float:
        """Return seconds of one processor per second between these times, of `time.monotonic_ns`."""
        first, last = np.interp([from_ns, until_ns], self._at_ns, self._used_s[word])
        return float((last - first) / ((until_ns - from_ns) / 1e9))

    def _run(self) -> None:
        while not self._stopping.wait(CPU_NOTED_S):
            self._note()

    def _note(self) -> None:
        self._at_ns.append(time.monotonic_ns())
        for word, process in self._processes.items():
            used_s = self._used_s[word]
            try:
                used_s.append(cpu_s(process))
            except psutil.NoSuchProcess:
                used_s.append(used_s[-1] if used_s else 0.0)


def memory_mb(word: str) -> dict[str, float]:
    """Return the memory of a service: resident, its own part, that of mapped files, and the peak."""
    process = Path("/proc") / str(service_process(word).pid)
    lines = ((process / "smaps_rollup").read_text() + (process / "status").read_text()).splitlines()
    kb = {line.split()[0].rstrip(":"): int(line.split()[1]) for line in lines if line.endswith(" kB")}
    own = kb["Anonymous"]
    figures = {"held": kb["Rss"], "own": own, "mapped": kb["Rss"] - own, "peak": kb["VmHWM"]}
    return {f"{word}_{name}_mb": figure / 1024 for name, figure in figures.items()}


def written_since(folder: Path, started_ns: int) -> dict[str, float]:
    """Return how many files of fragments, and of uploaded segments, were written since and are still
    there."""
    fragments = uploaded = 0
    for path in folder.rglob("*"):
        try:
            is_new = path.is_file() and path.stat().st_mtime_ns >= started_ns
        except FileNotFoundError:  # merges replace files all the time
            continue
        if not is_new:
            continue
        uploaded += path.is_relative_to(folder / "store")
        fragments += path.suffix == FRAGMENT_SUFFIX
    return {"fragments_written": fragments, "files_uploaded": uploaded}


class ClusterWatch:
    """The processor seconds of processes, `cpu_s`, while it is entered."""

    def __init__(self, processes: Iterable[ManagedProcess]) -> None:
        self._processes = [psutil.Process(process.pid()) for process in processes]
        self.cpu_s = 0.0

    def __enter__(self) -> ClusterWatch:
        self._began_s = sum(map(cpu_s, self._processes))
        return self

    def __exit__(self, *unused: object) -> None:
        self.cpu_s = sum(map(cpu_s, self._processes)) - self._began_s

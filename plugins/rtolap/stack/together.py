"""Many processes at once: each started as soon as those it needs answer, all stopped side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from rtolap.base.errors import ProcessFailed, RtolapError
from rtolap.stack.components import needed_first
from rtolap.stack.process import ManagedProcess

# (component, phase, note); phases: waiting, starting, ready, failed, skipped, stopping, stopped
Progress = Callable[[str, str, str], None]


def start_all(processes: Mapping[str, ManagedProcess], progress: Progress) -> dict[str, RtolapError]:
    """Start all in threads, each as soon as what it needs is ready. Returns the failures by name."""
    for name, need in needed_first(set(processes)).items():
        progress(name, "waiting", ", ".join(sorted(need)))
    with ThreadPoolExecutor(len(processes)) as pool:
        try:
            return _start_with(pool, processes, progress)
        except BaseException:  # an interrupt above all: the threads must not wait on
            for process in processes.values():
                process.cancel()
            raise


def _start_with(
    pool: ThreadPoolExecutor, processes: Mapping[str, ManagedProcess], progress: Progress
) -> dict[str, RtolapError]:
    needs = needed_first(set(processes))
    ready: set[str] = set()
    failed: dict[str, RtolapError] = {}
    running: dict[Future[None], str] = {}
    waiting = list(processes)
    while waiting or running:
        for name in list(waiting):
            broken = sorted(needs[name] & failed.keys())
            if broken:
                waiting.remove(name)
                failed[name] = ProcessFailed(f"{name} was not started", found=f"{broken[0]} failed")
                progress(name, "skipped", f"needs {broken[0]}")
            elif needs[name] <= ready:
                waiting.remove(name)
                already = processes[name].missing() is None
                progress(name, "starting", "runs already" if already else "")
                running[pool.submit(processes[name].start)] = name
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name = running.pop(future)
            error = future.exception()
            if error is None:
                ready.add(name)
                progress(name, "ready", processes[name].address)
            elif isinstance(error, RtolapError):
                failed[name] = error
                progress(name, "failed", error.message)
            else:
                raise error
    return failed


def stop_all(processes: Mapping[str, ManagedProcess], names: Collection[str], progress: Progress) -> None:
    chosen = [processes[name] for name in names if name in processes]

    def stop(process: ManagedProcess) -> None:
        progress(process.name, "stopping", "")
        process.stop()
        progress(process.name, "stopped", "")

    with ThreadPoolExecutor(max(1, len(chosen))) as pool:
        list(pool.map(stop, chosen))

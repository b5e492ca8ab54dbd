"""The README holds what it says: its tables, its links, its example."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_published_table_is_what_the_library_computes():
    script = runpy.run_path(str(ROOT / "scripts" / "readme_tables.py"))
    assert script["updated"](TEXT, script["render"]()) == TEXT, (
        "run python scripts/readme_tables.py"
    )


def test_every_test_that_it_names_exists():
    table = TEXT.split("## The seed, item by item")[1].split("## Layout")[0]
    named = 0
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) < 4:
            continue
        last = None
        for name in re.findall(r"`((?:test_\w+\.py)?(?:::\w+)?)`", cells[3]):
            file, _, function = name.partition("::")
            last = file or last
            source = (ROOT / "tests" / str(last)).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in source, name
            named += 1
    assert named > 25


def test_every_name_of_the_library_that_it_lists_exists():
    import importlib

    table = TEXT.split("## The seed, item by item")[1].split("## Layout")[0]
    for module, attribute in re.findall(r"`(gate|ordering|key|dcut|graph_cache)\.(\w+)", table):
        assert hasattr(importlib.import_module(f"verifylab.{module}"), attribute)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", TEXT))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL))
def test_examples_run(code):
    exec(compile(code, "README.md", "exec"), {})


def test_what_indirect_gains_is_what_advise_says():
    from verifylab.advise import advise, graph_ms_of
    from verifylab.machine import load_profile

    machine = load_profile("gb10-published")
    found = advise([2, 4, 5, 6, 7, 8], machine=machine)
    gain = found.gains[found.gains.policy == "indirect"].set_index("width").gain_pct
    assert f"would gain {gain[6]:.1f}, {gain[7]:.1f} and {gain[8]:.1f} % over the better" in TEXT
    assert gain[2] == pytest.approx(0.5, abs=0.05) == gain[4]
    off = found.gains[found.gains.policy == "unpruned"].set_index("width").gain_pct
    assert f"(by {off[6]:.1f}, {off[7]:.1f} and {off[8]:.1f} % at 6, 7 and 8)" in TEXT
    assert [w for w in off.index if off[w] > 0] == [2, 6, 7, 8]
    assert f"here {graph_ms_of(machine):.1f} ms" in TEXT
    cheap = advise([4, 6, 8], machine=machine, graph_ms=10, capacity=64)
    assert cheap.recommendation.never

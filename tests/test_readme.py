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

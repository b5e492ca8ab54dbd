"""Write the computed table of README.md between its markers; `--check` only compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from verifylab.paths import write_aside
from verifylab.validation import published_against_ours

README = Path(__file__).resolve().parent.parent / "README.md"
START, END = "<!-- published-against-ours -->", "<!-- /published-against-ours -->"


def render() -> str:
    """Return the table as Markdown."""
    lines = ["| figure | published | ours | role | verdict | source |", "|" + " --- |" * 6]
    for row in published_against_ours().itertuples():
        cells = (row.figure, row.published, row.ours, row.role, row.verdict, f"`{row.source}`")
        lines.append("| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines)


def updated(text: str, table: str) -> str:
    """Return the README's text with `table` between the markers."""
    pattern = re.escape(START) + r".*?" + re.escape(END)
    out, count = re.subn(pattern, lambda _: f"{START}\n{table}\n{END}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"README.md must hold {START} and {END} once, found {count} times")
    return out


def main() -> int:
    """Update or check; return the exit code."""
    old = README.read_text(encoding="utf-8")
    new = updated(old, render())
    if "--check" in sys.argv[1:]:
        if new != old:
            print("README.md is not up to date: run python scripts/readme_tables.py")
        return int(new != old)
    write_aside(README, new)
    return 0


if __name__ == "__main__":
    sys.exit(main())

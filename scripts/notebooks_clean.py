"""Store notebooks clean: python scripts/notebooks_clean.py [--check] [NOTEBOOK ...].

Takes out outputs, execution counts, timings, widget state and whatever papermill and JupyterLab
leave behind; kernelspec ``python3``. Without names: every notebook of the project. --check writes
nothing, lists those that are not clean and exits 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbstripout import strip_output

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("notebooks", "tests/fixtures/notebooks")

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
#: Of a cell's metadata only this is the author's; the rest is left by tools.
CELL_METADATA = ("tags", "jupyter", "slideshow")
#: Cells that papermill adds, and tags that would make nbstripout keep an output.
GENERATED = {"injected-parameters", "papermill-error-cell-tag"}
KEEP = {"keep_output"}


def cleaned(text: str) -> str:
    """Return the text of a notebook as it should be stored."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if not GENERATED & set(cell.metadata.get("tags", ()))
    ]
    for cell in notebook.cells:
        kept = {k: cell.metadata[k] for k in CELL_METADATA if k in cell.metadata}
        if "tags" in kept:
            kept["tags"] = [tag for tag in kept["tags"] if tag not in KEEP]
        cell.metadata = nbformat.from_dict({k: v for k, v in kept.items() if v})
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    )
    notebook = strip_output(notebook, keep_output=False, keep_count=False, keep_id=True)
    # An older minor version has no cell ids: those that nbformat fills in would differ each time.
    for at, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{at}")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def main() -> int:
    """Clean, or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if unclean")
    parser.add_argument("notebooks", nargs="*", type=Path)
    asked = parser.parse_args()
    paths = asked.notebooks or [p for f in FOLDERS for p in sorted((ROOT / f).glob("*.ipynb"))]
    unclean = 0
    for path in paths:
        try:
            before = path.read_text(encoding="utf-8")
            after = cleaned(before)
        except (OSError, UnicodeDecodeError, nbformat.ValidationError, ValueError) as error:
            print(f"error: {path}: {str(error).splitlines()[0]}", file=sys.stderr)
            return 2
        if after != before:
            unclean += 1
            print(f"{'not clean' if asked.check else 'cleaned'}: {path}")
            if not asked.check:
                path.write_text(after, encoding="utf-8")
    return 1 if asked.check and unclean else 0


if __name__ == "__main__":
    sys.exit(main())

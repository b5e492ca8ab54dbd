"""Published tables: read once, handed out as copies, and every mistake is one sentence."""

import math
import sys
from pathlib import Path

import pandas as pd
import pytest

from verifylab import fit, published
from verifylab.graph_costs import published_costs
from verifylab.published import DataError, data_dir, figure, table
from verifylab.published_schema import COLUMNS, ROWS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty ``data/published`` that the library takes for its own."""
    data = tmp_path / "data"
    (data / "published").mkdir(parents=True)
    monkeypatch.setenv("VERIFYLAB_DATA", str(data))
    return data / "published"


def test_every_published_table_reads_and_every_row_has_its_source():
    files = sorted((data_dir() / "published").glob("*.csv"))
    assert len(files) >= 10
    readme = (data_dir() / "published" / "README.md").read_text(encoding="utf-8")
    for path in files:
        frame = table(path.stem)
        assert len(frame) > 0, path.name
        assert frame.columns.is_unique
        if "source" in frame.columns:
            assert frame.source.notna().all(), path.name
        else:  # one source for the whole table
            assert f"`{path.name}`" in readme, path.name


def test_a_table_is_a_copy():
    first = table("canonical_ab")
    first.iloc[:, 0] = 0
    assert (table("canonical_ab").iloc[:, 0] != 0).all()


def test_a_figure_is_one_number():
    assert figure("nsys_c8", "captures", "value") == 149.0
    assert isinstance(figure("nsys_c8", "captures", "value"), float)


def test_a_missing_table_is_one_sentence(folder):
    with pytest.raises(DataError, match="published table other.csv is missing from"):
        table("other")


@pytest.mark.parametrize("content", [b"", b'a,b\n"1,2', b"a,b\n1,2\n3,4,5\n", b"a\n\xff\xfe\n"])
def test_a_table_that_is_no_csv_is_one_sentence(folder, content):
    (folder / "bad.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"published table .*bad.csv cannot be read as CSV"):
        table("bad")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder opens differently there")
def test_a_folder_in_its_place_is_one_sentence(folder):
    (folder / "bad.csv").mkdir()
    with pytest.raises(DataError, match=r"published table .*bad.csv cannot be read"):
        table("bad")


def test_figures_that_are_not_there(folder):
    (folder / "some.csv").write_text("name,value\na,1.5\nb,x\nc,\nd,1\nd,2\ne,inf\n", "utf-8")
    with pytest.raises(DataError, match="table some has no single row 'z' with a 'value'"):
        figure("some", "z", "value")
    with pytest.raises(DataError, match="table some has no single row 'd' with a 'value'"):
        figure("some", "d", "value")
    with pytest.raises(DataError, match="table some has no single row 'a' with a 'worth'"):
        figure("some", "a", "worth")
    for key in ("b", "c", "e"):
        with pytest.raises(DataError, match=f"table some, row '{key}': 'value' is no number"):
            figure("some", key, "value")


def test_a_missing_number_is_not_nan(folder):
    (folder / "some.csv").write_text("name,value\na,\nb,2\n", "utf-8")
    with pytest.raises(DataError, match="row 'a': 'value' is no number"):
        figure("some", "a", "value")
    assert math.isfinite(figure("some", "b", "value"))


def test_the_data_folder_is_found_beside_the_package(monkeypatch, tmp_path):
    monkeypatch.delenv("VERIFYLAB_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert (data_dir() / "published" / "canonical_ab.csv").is_file()


def test_the_data_folder_is_found_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("VERIFYLAB_DATA", raising=False)
    elsewhere = tmp_path / "site-packages" / "verifylab" / "published.py"
    monkeypatch.setattr(published, "__file__", str(elsewhere))
    (tmp_path / "data" / "published").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert data_dir() == tmp_path / "data"


def test_no_data_folder_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"no data folder with published/ in .*VERIFYLAB_DATA"):
        data_dir()


def test_a_data_error_is_a_value_error():
    assert issubclass(DataError, ValueError)
    assert isinstance(table("canonical_ab"), pd.DataFrame)


@pytest.fixture
def copied(folder):
    """The real tables, to damage."""
    root = Path(published.__file__).parents[1] / "data" / "published"
    for path in root.glob("*.csv"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def every_use():
    """Whatever reads published tables: the fits, the comparison's parts, the graph costs."""
    fit.fit_acceptance()
    fit.fit_machine()
    published_costs()
    for name in COLUMNS:
        table(name)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_a_cut_table_is_one_sentence(copied, name):
    path = copied / f"{name}.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text(lines[0] + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"published table {name}.csv has no rows"):
        table(name)
    if name in ROWS:
        other = [lines[0], lines[2 if name == "model_dims" else 1]]
        path.write_text("\n".join(other) + "\n", encoding="utf-8")
        published._read.cache_clear()
        with pytest.raises(DataError, match=f"published table {name}.csv lacks the row with "):
            table(name)


@pytest.mark.parametrize(("name", "column"), [(n, c) for n in sorted(COLUMNS) for c in COLUMNS[n]])
def test_a_lost_or_garbled_column_is_one_sentence(copied, name, column):
    path = copied / f"{name}.csv"
    frame = pd.read_csv(path)
    frame.rename(columns={column: "other"}).to_csv(path, index=False)
    with pytest.raises(DataError, match=f"{name}.csv lacks the column '{column}'"):
        table(name)
    published._read.cache_clear()
    garbled = frame.astype({column: object})
    text = COLUMNS[name][column].startswith("text")
    garbled[column] = garbled.index + 1 if text else "many"
    garbled.to_csv(path, index=False)
    with pytest.raises(DataError, match=f"{name}.csv line 2: {column} must be .*, got "):
        table(name)


def test_a_range_where_one_number_is_read_is_one_sentence(copied):
    path = copied / "acceptance.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("0.793", "0.7-0.8"), encoding="utf-8")
    with pytest.raises(DataError, match="acceptance.csv, line 4: p1 must be one number, got '0.7-"):
        fit.fit_acceptance()
    path.write_text(path.read_text(encoding="utf-8").replace("0.551-0.649", ""), encoding="utf-8")
    published._read.cache_clear()
    path.write_text(path.read_text(encoding="utf-8").replace("0.7-0.8", "0.793"), encoding="utf-8")
    with pytest.raises(DataError, match="acceptance.csv, line 8: p2_given_1 must be a number or"):
        fit.fit_acceptance()


def test_the_real_tables_serve_every_use():
    every_use()

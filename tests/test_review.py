"""The design-review set: from what three small sweeps stored (tests/fixtures/stored)."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib.style
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib import colors
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from test_notebooks import ROOT

from verifylab.cli import main
from verifylab.dark import BACKGROUND, darken
from verifylab.plots import STYLE
from verifylab.records import SCHEMA, read_record, write_records
from verifylab.review import PANELS, collect, marked_threshold
from verifylab.review_pages import MARGIN, PAGE, _figure_pages, _front, paragraph, save_review
from verifylab.review_text import kernels_kept
from verifylab.stored_runs import stored_runs
from verifylab.width_gate import Config, save, width_gate

STORED = ROOT / "tests" / "fixtures" / "stored"


@pytest.fixture(scope="module")
def review():
    return collect([STORED])


@pytest.fixture(scope="module")
def saved(review, tmp_path_factory):
    return save_review(review, tmp_path_factory.mktemp("saved"))


def changed(run, **parameters):
    """Give a stored run other parameters."""
    body = json.loads((run / "params.json").read_text())
    body["parameters"] |= parameters
    (run / "params.json").write_text(json.dumps(body))


def ended(run, when):
    """Give a stored run another time at which it ended."""
    body = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**body, "ended": when}))


def a_copy(tmp_path):
    """Return the folder of a copy of the small sweeps, and in it the width-gate run."""
    shutil.copytree(STORED, tmp_path / "runs")
    (run,) = (tmp_path / "runs" / "width_gate").glob("*/")
    return tmp_path / "runs", run


def test_all_six_figures_with_their_captions(review):
    assert [d.panel for d in review.drawn] == list(PANELS) and review.missing == ()
    for drawn in review.drawn:
        assert re.search(
            r"^(counted|(modelled|measured) on \S+) \| \w+/\S+ \| commit \w{9}\+? \| "
            r"\d{4}-\d\d-\d\d( \| n = \d+ seeds)?$",
            drawn.caption,
        ), drawn.caption
        said = [t.get_text() for t in drawn.figure().texts]
        assert drawn.caption in said
        assert drawn.reading in [" ".join(text.split()) for text in said]


def test_the_verdict_is_that_of_the_runs(review):
    gate, widths, off, form, policies, kernels, cache, basis, words = review.verdict
    assert gate.startswith("Gate at ") and "indirect" in policies and "width 8" in cache
    assert "at 6" in widths and "it beats canonical at" in off and "not redrawn" in form
    assert "with the kernels kept, at 31.3 ms" in kernels and "exec_update" in kernels
    assert basis.startswith("All times are modelled on gb10-published, no step ran on a GPU")
    assert "ratio 0.75" in basis and "32 graphs" in basis and "31.3 ms" in basis
    assert all(word in words for word in ("Arrangement", "Canonical", "Indirect", "Redraw"))
    assert not any("-0.0 " in line for line in review.verdict)
    (run,) = [r for r in stored_runs(STORED) if r.sweep == "width_gate"]
    marked = marked_threshold(run.table("recommendation"))
    assert gate.startswith(f"Gate at {marked}")


def test_equal_thresholds_are_named_as_the_recommendation_does():
    def chosen(*rows):
        return marked_threshold(pd.DataFrame(rows, columns=["min_width", "gain_pct"]))

    assert chosen((2, 1.0), (5, 2.0), (6, 2.0), (9, 0.0)) == 6
    assert chosen((2, 1.0), (5, 2.0), (8, 2.0), (9, 0.0)) == 8
    assert chosen((2, -1.0), (9, 0.0), (33, 0.0)) == 9
    assert chosen((2, 0.0), (8, 0.0)) is None


def test_everything_is_written_and_twice_alike(review, saved, tmp_path):
    written = saved
    assert [p.name for p in written[:2]] == ["index.html", "handout.pdf"]
    names = {p.name for p in written}
    for panel in PANELS:
        for kind in ("svg", "png", "pdf"):
            assert {f"{panel.name}.{kind}", f"{panel.name}-dark.{kind}"} <= names
        for table in panel.needs:
            assert f"{panel.name}.{table}.csv" in names
    page = written[0].read_text()
    assert page.index("Gate at") < page.index("Key space against width")
    assert "http" not in page.replace("http-equiv", "")
    assert written[1].read_bytes().startswith(b"%PDF")
    again = save_review(review, tmp_path / "b")
    assert [p.read_bytes() for p in written] == [p.read_bytes() for p in again]


def test_what_the_verdict_rests_on_is_of_the_run_of_the_gate(tmp_path):
    runs, gate = a_copy(tmp_path)
    changed(gate, graph_ms=10.0, dcut_ratio=0.5)
    review = collect([runs])
    (basis,) = [line for line in review.verdict if line.startswith("All times are modelled")]
    assert "D-Cut ratio 0.5" in basis and "; 10.0 ms a capture and eviction." in basis
    assert "31.3" not in basis
    other = (
        "Not at the width gate's settings: D-Cut ratio 0.75, not D-Cut ratio 0.5; 31.3 ms a "
        "capture and eviction, not 10.0 ms a capture and eviction."
    )
    policies = [line for line in review.verdict if "(indirect:" in line]
    assert len(policies) == 1 and policies[0].startswith(f"{other} Reading slots")
    assert any(line.startswith(f"{other} At width 8 no cache") for line in review.verdict)
    readings = {d.panel.name: d.reading for d in review.drawn}
    assert [name for name, said in readings.items() if said.startswith(other)] == [
        "5_capacity_memory", "6_policy_map",
    ]  # fmt: skip
    # A run that stores what its graphs cost is taken at its word.
    pd.read_csv(gate / "arms.csv").assign(graph_ms=12.5).to_csv(gate / "arms.csv", index=False)
    assert any("; 12.5 ms a capture" in line for line in collect([runs]).verdict)


def test_a_measured_gate_is_told_from_what_is_modelled_beside_it(tmp_path):
    runs, gate = a_copy(tmp_path)
    arms = pd.read_csv(gate / "arms.csv")
    arms.assign(time="measured", machine="GPU X", graph_ms=None).to_csv(gate / "arms.csv")
    with pytest.raises(ValueError, match="'arms' says measured, its parameters device 'model'"):
        collect([runs])
    changed(gate, device="cuda")
    review = collect([runs])
    (basis,) = [line for line in review.verdict if line.startswith("Times of the width gate")]
    told = "measured on GPU X, those of the other studies modelled on gb10-published; the width"
    assert told in basis
    assert "a capture" not in basis
    readings = {d.panel.name: d.reading for d in review.drawn}
    assert "when the seeds are redrawn" in readings["3_gate"]
    captions = {d.panel.name: d.caption for d in review.drawn}
    assert captions["3_gate"].startswith("measured on GPU X | ")
    assert captions["6_policy_map"].startswith("modelled on gb10-published | ")
    other = (
        "Not at the width gate's settings: times of gb10-published, not times of GPU X; 31.3 ms a "
        "capture and eviction, modelled. "
    )
    assert readings["6_policy_map"].startswith(other)
    assert "Crosses: D-Cut off" in readings["4_split"]
    arms = pd.read_csv(gate / "arms.csv")
    arms[arms.policy != "unpruned"].to_csv(gate / "arms.csv", index=False)
    alone = collect([gate])
    (basis,) = [line for line in alone.verdict if line.startswith("Times of the width gate")]
    assert "modelled" not in basis
    assert not any("Crosses" in d.reading for d in alone.drawn)
    assert any(line.startswith("Only the seeds are redrawn") for line in alone.verdict)


def test_the_verdict_says_what_its_figure_draws(tmp_path):
    runs, gate = a_copy(tmp_path)
    path = gate / "differences.csv"
    table = pd.read_csv(path)
    part = 0.2 * (table.width == 8)
    table.assign(
        delta_pct=table.delta_pct + part, tokens_pct=table.tokens_pct + part
    ).to_csv(path, index=False)  # fmt: skip
    said = f"{table.delta_pct[table.width == 8].item() + 0.2:+.1f} % at 8"
    assert any(said in line for line in collect([runs]).verdict if line.startswith("Canonical ag"))


@pytest.mark.parametrize(
    ("named", "said"),
    [(["STORED", "nowhere"], "nowhere is no folder of stored runs"), ([], "at least one folder"),
     (["STORED", ""], "'' is no folder of stored runs"), ([__file__], "is no folder of stored")],
)  # fmt: skip
def test_a_folder_that_is_none_is_named(named, said):
    with pytest.raises(ValueError, match=said):
        collect([STORED if name == "STORED" else name for name in named])


def test_runs_at_one_setting_are_not_told_apart(review):
    said = [*review.verdict, *(d.reading for d in review.drawn)]
    assert not any("'s settings" in line or "is drawn, one of" in line for line in said)


def test_one_setting_in_other_words_is_the_same(tmp_path):
    runs, gate = a_copy(tmp_path)
    changed(gate, drafts="8:3,32:1", dcut_ratio=0.7, graph_ms=31.3)
    (why,) = (runs / "why_it_costs").glob("*/")
    changed(why, machine="profiles/gb10-published.json")
    review = collect([runs])
    assert not any("'s settings" in line for line in review.verdict)
    assert {d.caption.split(" | ")[0] for d in review.drawn} == {
        "counted", "modelled on gb10-published",
    }  # fmt: skip
    changed(gate, drafts=3)
    told = collect([runs]).verdict
    assert any("drafts 8:3, above:1, not drafts 3 at every width." in line for line in told)


def test_the_kernels_kept_are_priced_as_the_sentence_says():
    table = pd.DataFrame(
        [[8, cost, "padded", gain, kind] for cost, gain, kind in
         ((5.0, 2.0, "kernels kept"), (15.0, 4.0, "kernels kept"), (12.0, 0.0, "ratio"))],
        columns=["width", "graph_ms", "policy", "gain_pct", "map"],
    )  # fmt: skip
    said = kernels_kept(table)
    assert "at 15 ms a graph (the map's nearest to the machine's 12.0), the best" in said
    assert "nearest" not in kernels_kept(table.assign(graph_ms=12.0))


def test_a_long_reading_keeps_clear_of_caption_and_axes(tmp_path):
    runs, gate = a_copy(tmp_path)
    changed(gate, drafts="2:5,4:4,8:3", dcut_ratio=0.5, graph_ms=10.0, graph_capacity=64)
    review = collect([runs])
    policies = review.drawn[-1]
    assert policies.reading.count("not ") >= 4
    assert_clear([*_figure_pages(policies), *_front(review)])
    for drawn in review.drawn:
        figure = drawn.figure()
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [t.get_window_extent(renderer) for t in figure.texts if t.get_text()]
        assert all(box.x1 < figure.bbox.width for box in boxes), drawn.panel.name
        assert boxes[1].y0 > boxes[0].y1, "the reading above the caption"


def test_one_study_is_drawn_from_one_run(tmp_path):
    runs, whole = a_copy(tmp_path)
    part = whole.with_name("part")
    shutil.copytree(whole, part)
    (part / "recommendation.csv").unlink()
    ended(part, "2999-01-01T00:00:00+00:00")
    review = collect([runs])
    assert {d.run.folder for d in review.drawn if d.panel.sweep == "width_gate"} == {whole}
    assert review.passed_over == (
        f"width_gate/part (2999-01-01T00:00:00+00:00): {whole.parent.name}/{whole.name} holds more "
        "of the figures",
    )


def test_one_cell_of_a_grid_is_said_to_be_one(tmp_path):
    runs, first = a_copy(tmp_path)
    for capacity in (8, 16, 64, 128, 256):
        cell = first.with_name(f"cell-{capacity}")
        shutil.copytree(first, cell)
        changed(cell, graph_capacity=capacity, seeds=3)
    ended(first, "2999-01-01")
    review = collect([runs])
    assert review.verdict[0].startswith("Gate at ")
    assert review.verdict[1].startswith(f"width_gate/{first.name} is drawn, one of 6 settings of")
    (line,) = review.passed_over
    assert line.startswith("5 runs of width_gate, such as width_gate/cell-128: graph_capacity 128,")
    assert line.endswith("; and 1 more")
    shutil.rmtree(first.with_name("cell-8"))
    assert len(collect([runs]).passed_over) == 4


@pytest.mark.parametrize(
    ("sweep", "table", "change", "said"),
    [
        ("width_gate", "recommendation", lambda t: t.assign(gain_pct=t.gain_pct[::-1].values),
         "its summary says 'Gate at 7' and +2.0 %, its table 'recommendation' +2.0 % at 6"),
        ("width_gate", "recommendation", lambda t: t.assign(gain_pct=t.gain_pct + 1),
         "its summary says 'Gate at 7' and +2.0 %, its table 'recommendation' +3.0 % at 7"),
        ("width_gate", "recommendation", lambda t: t[t.min_width != 7], "its summary says 'Gate"),
        ("width_gate", "differences", lambda t: t.assign(width=t.width.values[::-1]),
         "its tables contradict each other: canonical at width "),
        ("width_gate", "arms", lambda t: t[t.width != 8], "has the widths 2, 4, 6, 7, 16, its par"),
        ("width_gate", "arms", lambda t: t.assign(tok_s=-t.tok_s), "must be 0 or more, got -1"),
        ("why_it_costs", "map", lambda t: t.assign(graph_ms=t.graph_ms - 1), "0 or more, got -1"),
        ("cache_policies", "harmless", lambda t: t.assign(width=-8), "must be 1 or more, got -8"),
        ("width_gate", "arms", lambda t: pd.concat([t, t.tail(1)]),
         "its table 'arms' has more than one row of width 16, policy unpruned"),
        ("why_it_costs", "map", lambda t: pd.concat([t.head(1), t]), "more than one row of map co"),
        ("cache_policies", "harmless", lambda t: t.assign(width=8), "more than one row of width 8"),
        ("width_gate", "arms", lambda t: t.assign(time=["measured", *t.time[1:]]),
         "column 'time' of its table 'arms' must hold one value throughout"),
        ("width_gate", "arms", lambda t: t.assign(machine=["H200", *t.machine[1:]]), "one value"),
        ("width_gate", "arms", lambda t: t.assign(seeds=0), "'arms' must be 1 or more, got 0"),
        ("width_gate", "arms", lambda t: t.assign(graph_ms=-3.0), "must hold 0 or more"),
        ("width_gate", "arms", lambda t: t.assign(graph_ms=float("nan")), "must hold 0 or more"),
        ("width_gate", "recommendation", lambda t: t.assign(probability=5.0), "1 or less, got 5"),
        ("width_gate", "differences", lambda t: t[t.width != 8], "the widths 2, 4, 6, 7, 16,"),
        ("width_gate", "differences", lambda t: t.assign(tokens_pct=-80.0), "the parts in its"),
        ("width_gate", "differences", lambda t: t.assign(work_pct=float("nan")), "finite numbers"),
        ("width_gate", "differences", lambda t: t.assign(
            delta_pct=t.delta_pct + 12, delta_high=t.delta_high + 12, work_pct=t.work_pct + 12
        ), "its tables contradict each other: canonical at width"),
    ],
)  # fmt: skip
def test_tables_that_contradict_are_one_sentence(tmp_path, sweep, table, change, said):
    assert said in damaged(tmp_path, sweep, table, change)


def test_a_summary_that_names_no_gate_is_a_contradiction(tmp_path):
    runs, gate = a_copy(tmp_path)
    (gate / "summary.txt").write_text("Looks fine to me.")
    with pytest.raises(ValueError, match=r"its summary names no gate, its table .* \+2.0 % at 7"):
        collect([runs])
    path = gate / "recommendation.csv"
    pd.read_csv(path).assign(gain_pct=0.0).to_csv(path, index=False)
    assert "Looks fine to me." in collect([runs]).verdict


def test_figures_of_an_earlier_set_do_not_stay(review, tmp_path):
    out = tmp_path / "out"
    save_review(review, out)
    (out / "mine.csv").write_text("kept")
    mine = tmp_path / "mine" / "6_policy_map.png"
    mine.parent.mkdir()
    mine.write_text("a reader's own")
    gate = collect([STORED / "width_gate"])
    assert save_review(gate, mine.parent) and mine.read_text() == "a reader's own"
    (tmp_path / "taken" / mine.name).mkdir(parents=True)
    with pytest.raises(ValueError, match="6_policy_map.png is there already"):
        save_review(gate, tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [mine.name]
    alone = collect([STORED / "why_it_costs"])
    left = {path.name for path in save_review(alone, out)}
    assert {path.name for path in out.iterdir()} == {*left, "mine.csv"}
    assert {name[0] for name in left if name[0].isdigit()} == {"6"}


def test_a_folder_of_something_else_is_left_alone(review, tmp_path):
    for name in ("index.html", "handout.pdf"):
        other = tmp_path / name / name
        other.parent.mkdir()
        other.write_text("<title>My page</title>")
        with pytest.raises(ValueError, match=f"{name} is there already, and not of a design rev"):
            save_review(review, other.parent)
        assert [p.name for p in other.parent.iterdir()] == [name]
        assert other.read_text() == "<title>My page</title>"
    mine = tmp_path / "mine" / "3_gate.recommendation.csv"
    mine.parent.mkdir()
    mine.write_text("my own")
    with pytest.raises(ValueError, match="recommendation.csv is there already"):
        save_review(review, mine.parent)
    runs, gate = a_copy(tmp_path)
    with pytest.raises(ValueError, match="is a stored run: name a folder outside it"):
        save_review(review, gate / "figures")
    assert not (gate / "figures").exists()
    done = CliRunner().invoke(main, ["figures", str(STORED), "--out", ""])
    assert done.exit_code == 2 and "--out must be the name of a folder" in done.stderr


def test_one_name_in_two_stores_is_two_runs(tmp_path):
    runs, gate = a_copy(tmp_path)
    part = tmp_path / "other" / "width_gate" / gate.name
    shutil.copytree(gate, part)
    for name in ("recommendation.csv", "differences.csv"):
        (part / name).unlink()
    for order in ([runs, tmp_path / "other"], [tmp_path / "other", runs]):
        review = collect(order)
        assert len(review.drawn) == 6 and review.drawn[0].run.folder == gate
        assert gate.parts[-3] in review.passed_over[0], "told by its folder"


def test_the_mark_is_the_gate_that_the_summary_names(tmp_path):
    config = Config(widths=[7], min_widths=[1, 2], seeds=3, steps=2, warmup_steps=0, draws=100,
                    first_seed=135, output_tokens=2, device="model")  # fmt: skip
    found = width_gate(config)
    assert found.recommendation.gain_pct > 0 and found.summary().startswith("Gate at 2 (1 decides")
    runs, gate = a_copy(tmp_path)
    save(found, gate)
    changed(gate, widths=[7])
    (drawn,) = [d for d in collect([runs]).drawn if d.panel.name == "3_gate"]
    assert any(t.get_text() == "recommended" for t in drawn.figure().axes[0].texts)


def test_what_differs_between_runs_is_told_of_what_both_have(tmp_path):
    runs, gate = a_copy(tmp_path)
    later = gate.with_name("later")
    shutil.copytree(gate, later)
    changed(later, row_budget=64, seeds=2, steps=5)
    ended(later, "2999-01-01")
    review = collect([runs])
    (line,) = review.passed_over
    assert line.endswith("width_gate/later ended later (this one: seeds 4, steps 300)")
    assert not any("one of" in said and "settings" in said for said in review.verdict)
    (later / "params.json").unlink()
    with pytest.raises(ValueError, match="later: its params.json is missing or holds no par"):
        collect([runs])


def test_what_shapes_the_work_is_a_setting_too(tmp_path):
    runs, _ = a_copy(tmp_path)
    (caches,) = (runs / "cache_policies").glob("*/")
    changed(caches, output_tokens=16)
    told = collect([runs]).verdict
    assert any("16 tokens a request, not 256 tokens a request. At width 8" in t for t in told)


def test_what_is_missing_is_named(tmp_path):
    shutil.copytree(STORED / "width_gate", tmp_path / "width_gate")
    review = collect([tmp_path])
    assert len(review.drawn) == 4 and [p.sweep for p in review.missing] == [
        "cache_policies",
        "why_it_costs",
    ]
    page = save_review(review, tmp_path / "out")[0].read_text()
    assert "Not in these runs: Which policy wins" in page


def test_the_run_that_ended_last_is_drawn_and_the_others_are_named(tmp_path):
    shutil.copytree(STORED / "width_gate", tmp_path / "runs" / "width_gate")
    (first,) = (tmp_path / "runs" / "width_gate").glob("*/")
    second = first.parent.parent / "again" / "early"
    shutil.copytree(first, second)
    ended(first, "2026-11-30T10:30:00+02:00")
    ended(second, "2026-11-30T09:00:00+00:00")  # later, though the text sorts before
    review = collect([tmp_path / "runs"])
    assert {d.run.label for d in review.drawn} == {"again/early"}
    (line,) = review.passed_over
    assert line.startswith(f"width_gate/{first.name} (")
    assert line.endswith("again/early ended later")
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["figures", str(tmp_path / "runs"), "--out", str(out)])
    assert f"passed over {line}" in done.stderr and "used again/early: 1_key_space" in done.stderr
    assert f"Passed over: {line}" in (out / "index.html").read_text()


def test_a_drain_is_told_from_its_own_run(tmp_path):
    shutil.copytree(STORED / "width_gate", tmp_path / "width_gate")
    (steady,) = (tmp_path / "width_gate").glob("*/")
    drain = steady.with_name("drain")
    shutil.copytree(steady, drain)
    changed(drain, mode="drain")
    ended(drain, "2999-01-01")
    (drain / "summary.txt").write_text("Gate at 7, a drain.")
    review = collect([tmp_path])
    assert {d.run.folder for d in review.drawn} == {steady}, "a drain comes after a steady run"
    told = [line for line in review.verdict if line.startswith("As a drain (width_gate/drain): ")]
    assert told and "Gate at 7, a drain." in told[0]
    changed(drain, graph_capacity=64)
    (told,) = [line for line in collect([tmp_path]).verdict if line.startswith("As a drain")]
    assert "(width_gate/drain; 64 graphs, not 32 graphs)" in told
    (drain / "summary.txt").write_text("Gate at 8, a drain.")
    with pytest.raises(ValueError, match="drain: its summary says 'Gate at 8', its table"):
        collect([tmp_path])
    (drain / "recommendation.csv").unlink()
    assert not any(line.startswith("As a drain") for line in collect([tmp_path]).verdict)


def test_all_pages_of_the_handout_are_one_size_and_keep_the_margin(review, saved):
    pdf = saved[1].read_bytes()
    boxes = re.findall(rb"/MediaBox \[([^\]]*)\]", pdf)
    assert len(boxes) == 8 and len(set(boxes)) == 1
    assert_clear([*_front(review), *(p for d in review.drawn for p in _figure_pages(d))])


def assert_clear(figures):
    """Every text of these pages inside the margin, none upon another or upon the axes."""
    with matplotlib.style.context(STYLE):
        for page in figures:
            renderer = FigureCanvasAgg(page).get_renderer()
            inch = page.dpi
            wide, tall = (inch * size for size in PAGE)
            edge = (MARGIN - 0.02) * inch
            boxes = [t.get_window_extent(renderer) for t in page.texts]
            boxes += [ax.get_tightbbox(renderer) for ax in page.axes]
            for box in boxes:
                assert box.x0 >= edge and box.x1 <= wide - edge
                assert box.y0 >= edge and box.y1 <= tall - edge
            notes = [t.get_window_extent(renderer) for t in page.texts]
            assert all(a.y0 > b.y1 for a, b in itertools.pairwise(notes)), "one below the other"
            for ax in page.axes:
                assert notes[1].y1 < ax.get_tightbbox(renderer).y0, "reading below the axes"


def test_runs_that_are_not_good_are_left_out(tmp_path):
    shutil.copytree(STORED / "width_gate", tmp_path / "width_gate")
    (folder,) = (tmp_path / "width_gate").glob("*/")
    assert len(stored_runs(tmp_path)) == len(stored_runs(folder, tmp_path / "width_gate")) == 1
    (folder / "arms.csv").write_text("")
    with pytest.raises(ValueError, match="arms.csv cannot be read"):
        collect([tmp_path])
    body = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**body, "status": "failed"}))
    with pytest.raises(ValueError, match=rf"no good stored run in .*width_gate/{folder.name}: fai"):
        collect([tmp_path])


def test_what_is_not_as_it_was_stored_is_passed_over_and_named(tmp_path):
    runs, gate = a_copy(tmp_path)
    for at, name in enumerate(("edited", "missing", "torn", "failed")):
        bad = gate.with_name(name)
        shutil.copytree(gate, bad)
        (bad / "figures").mkdir()
        (bad / "figures" / "a.b.csv").write_text("x\n1\n")
        provenance = json.loads((bad / "provenance.json").read_text())
        record = replace(read_record(bad), run=name, schema=SCHEMA, ended="2999-01-01")
        if name == "failed":
            record = replace(record, status="failed", error="RuntimeError: the\nGPU fell over")
        write_records(bad, record, {"seeds": at}, provenance)
    arms = gate.with_name("edited") / "arms.csv"
    arms.write_text(arms.read_text().replace("8", "19", 1))
    (gate.with_name("missing") / "recommendation.csv").unlink()
    with (gate.with_name("torn") / "figures" / "a.b.csv").open("a") as file:
        file.write("2\n")
    size = (gate / "arms.csv").stat().st_size
    review = collect([runs])
    assert review.drawn[0].run.folder == gate
    assert review.passed_over == (
        f"width_gate/edited: corrupt, arms.csv has {size + 1} bytes, {size} were written",
        "width_gate/failed: failed, RuntimeError: the GPU fell over",
        "width_gate/missing: corrupt, no recommendation.csv",
        "width_gate/torn: corrupt, figures/a.b.csv has 6 bytes, 4 were written",
    )
    plain = runs / "by_papermill"
    plain.mkdir()
    shutil.copy(gate / "result.parquet", plain)
    (*_, last) = collect([runs]).passed_over
    assert "by_papermill: it has no record, so that no sweep or import stored it" in last
    shutil.rmtree(plain)
    shutil.copytree(gate.with_name("torn"), gate.with_name("torn2"))
    assert collect([runs]).passed_over == (
        "4 corrupt, 1 failed, such as width_gate/edited (verifylab runs SWEEP/RUN --show says why)",
    )
    arms.write_text((gate / "arms.csv").read_text().replace("8", "9", 1))
    with pytest.raises(ValueError, match="edited/arms.csv cannot be read: it is not as it was wr"):
        collect([runs])


def test_dark_mirrors_greys_and_keeps_what_is_hidden():
    figure = Figure()
    ax = figure.subplots()
    (cross,) = ax.plot([0], [0], "x", color="black")
    (blue,) = ax.plot([0, 1], [0, 1], color="#0072B2")
    bar = ax.bar([0], [1], color="#F0E442", edgecolor="none")[0]
    inside = ax.annotate("a", (0, 0.5))
    above = ax.annotate("b", (0, 0.985), xycoords=("data", "axes fraction"))
    darken(figure)
    assert min(colors.to_rgb(cross.get_markeredgecolor())) > 0.9
    assert colors.to_rgb(blue.get_color())[2] > 0.7
    assert bar.get_edgecolor()[3] == 0 and colors.to_rgb(inside.get_color()) == (0, 0, 0)
    assert min(colors.to_rgb(above.get_color())) > 0.9
    assert colors.to_hex(ax.get_facecolor()) == BACKGROUND


def test_an_outline_is_kept_in_the_colour_of_the_page():
    figure = Figure()
    (tick,) = figure.subplots().plot([0], [0], "_", color="#009E73")
    tick.set_path_effects([withStroke(linewidth=5, foreground="white")])
    darken(figure)
    (effect,) = tick.get_path_effects()
    assert effect._gc["foreground"] == BACKGROUND


def test_the_command(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["figures", str(STORED / "why_it_costs"), "--out", str(out)])
    assert done.exit_code == 0 and "hand-out" in done.stdout
    assert (out / "index.html").is_file()
    done = CliRunner().invoke(main, ["figures", str(STORED), "--out", str(out), "--json"])
    assert [json.loads(line)["figure"] for line in done.stdout.splitlines()] == [
        panel.name for panel in PANELS
    ]
    page = out / "index.html"
    many = CliRunner().invoke(main, ["figures", str(page), str(STORED), "--out", str(out)])
    assert many.exit_code == 0 and f"passed over {page}: a file" in many.stderr
    alone = CliRunner().invoke(main, ["figures", str(page), "--out", str(out)])
    assert alone.exit_code == 2 and "index.html is no folder of stored runs" in alone.stderr
    wrong = CliRunner().invoke(main, ["figures", str(tmp_path / "nowhere"), "--out", str(out)])
    assert wrong.exit_code == 2 and "is no folder of stored runs" in wrong.stderr


def damaged(tmp_path, sweep, table, change):
    """Return the sentence about a stored table that `change` made something else."""
    shutil.copytree(STORED / sweep, tmp_path / sweep)
    (path,) = (tmp_path / sweep).glob(f"*/**/*{table}.csv")
    change(pd.read_csv(path)).to_csv(path, index=False)
    with pytest.raises(ValueError, match=f"{sweep}/") as caught:
        for drawn in collect([tmp_path]).drawn:
            drawn.figure()
    return str(caught.value)


@pytest.mark.parametrize(
    ("sweep", "table", "change", "said"),
    [
        ("width_gate", "arms", lambda t: t.drop(columns="reachable_keys"), "no column 'reachable"),
        ("width_gate", "arms", lambda t: t.drop(columns="policy"), "not as a sweep stores them"),
        ("width_gate", "arms", lambda t: t.iloc[:0], "has no row"),
        ("width_gate", "arms", lambda t: t[t.policy == "canonical"], "not as a sweep stores them"),
        ("width_gate", "arms", lambda t: t.assign(tok_s="x"), "must hold finite numbers"),
        ("width_gate", "arms", lambda t: t.assign(tok_s=float("nan")), "must hold finite numbers"),
        ("why_it_costs", "map", lambda t: t.assign(gain_pct=float("inf")), "must hold finite"),
        ("why_it_costs", "map", lambda t: t.drop(columns="second"), "not as a sweep stores them"),
        ("cache_policies", "harmless", lambda t: t.iloc[:0], "has no row"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_one_sentence(tmp_path, sweep, table, change, said):
    assert said in damaged(tmp_path, sweep, table, change)


def test_names_are_drawn_as_they_are_spelled(tmp_path):
    (run,) = (STORED / "width_gate").glob("*/")
    shutil.copytree(run, tmp_path / "s" / r"run $\frac{1}{$")
    (drawn, *_) = collect([tmp_path]).drawn
    figure = drawn.figure()
    FigureCanvasAgg(figure).draw()
    assert any(r"$\frac{1}{$" in text.get_text() for text in figure.texts)


def test_a_name_that_cannot_be_written_is_drawn_with_question_marks(tmp_path):
    (run,) = (STORED / "width_gate").glob("*/")
    bad = tmp_path / os.fsdecode(b"s\xff") / "a\x07c"
    shutil.copytree(run, bad.with_name("a\x07b"))
    shutil.copytree(run, bad)
    body = json.loads((bad / "status.json").read_text())
    body |= {"status": "failed", "error": "x\x1b[31m y"}
    (bad / "status.json").write_text(json.dumps(body))
    review = collect([tmp_path])
    assert " | s?/a?b | " in review.drawn[0].caption
    assert review.passed_over == ("s?/a?c: failed, x?[31m y",)
    for path in save_review(review, tmp_path / "out"):
        if path.suffix == ".svg":
            ElementTree.parse(path)


def test_a_link_to_a_run_has_the_name_of_the_link(tmp_path):
    (run,) = (STORED / "width_gate").glob("*/")
    shutil.copytree(run, tmp_path / "elsewhere" / "x")
    (tmp_path / "runs" / "gate").mkdir(parents=True)
    (tmp_path / "runs" / "gate" / "cell").symlink_to(tmp_path / "elsewhere" / "x")
    assert [r.label for r in stored_runs(tmp_path / "runs")] == ["gate/cell"]


def test_a_run_is_named_once_in_a_sentence(tmp_path):
    runs, gate = a_copy(tmp_path)
    path = gate / "arms.csv"
    pd.read_csv(path).drop(columns="policy").to_csv(path, index=False)
    with pytest.raises(ValueError, match="not as a sweep stores them") as caught:
        save_review(collect([runs]), tmp_path / "out")
    assert str(caught.value).count("not as a sweep stores them") == 1


def test_a_paragraph_is_spelled_as_it_is():
    said = paragraph("<b> $x$ & *a*")
    assert said == '<p class="tex2jax_ignore mathjax_ignore">&lt;b&gt; $x$ &amp; *a*</p>'


def test_a_long_name_is_cut_in_a_caption_that_fits(tmp_path):
    runs, gate = a_copy(tmp_path)
    gate.rename(
        gate.with_name("widths-2,4,6,7,8_min_widths-2,4,6,7,8,9_seeds-4_gr-7ecd60d0407f22ee")
    )
    changed(next((runs / "width_gate").glob("*/")), graph_capacity=64)
    (drawn, second, *_) = collect([runs]).drawn
    assert " | width_gate/widths-2,4,6,7,8_m...0d0407f22ee | commit " in second.caption
    figure = second.figure()
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert all(t.get_window_extent(renderer).x1 < figure.bbox.width for t in figure.texts)
    assert "Above the dotted line" in drawn.reading
    for path in (drawn.run.folder / "arms.csv", drawn.run.folder / "differences.csv"):
        table = pd.read_csv(path)
        table[table.width <= 8].to_csv(path, index=False)
    changed(drawn.run.folder, widths=[2, 4, 6, 7, 8])
    assert "dotted" not in collect([runs]).drawn[0].reading


def test_a_newer_run_and_a_wrong_list_of_folders_are_told(tmp_path):
    shutil.copytree(STORED / "width_gate", tmp_path / "w")
    (status,) = tmp_path.glob("w/*/status.json")
    status.write_text(json.dumps({**json.loads(status.read_text()), "schema": 99}))
    with pytest.raises(ValueError, match="no good stored run in"):
        collect([tmp_path])
    with pytest.raises(ValueError, match="sweeps must be a list of folders, got 5"):
        collect(5)
    assert collect(str(STORED)).drawn

import json
from pathlib import Path

import numpy as np
import pytest

from verifylab import plots_caches, plots_churn
from verifylab.cache_study import RULES, Config, cache_study
from verifylab.churn_study import POOLS, ROUNDS

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "05_cache_policies.ipynb"


@pytest.fixture(scope="module")
def study():
    return cache_study(
        Config(widths=[4, 8], seeds=2, steps=4000, warmup_steps=2000, churn_hours=0.25)
    )


def test_harmless_is_where_captures_cost_one_percent(study):
    at_8 = study.harmless.set_index("width").loc[8]
    assert at_8.canonical_keys == 3
    assert at_8.arrangement_keys <= 266
    assert 32 < at_8.lru_breaks_even < at_8.lru_harmless <= 266
    assert at_8.min_breaks_even < at_8.lru_breaks_even
    assert at_8.min_harmless <= at_8.lru_harmless
    assert at_8.canonical_gb < 0.1 < 5 < at_8.arrangement_gb
    assert at_8.arrangement_tok_s > at_8.canonical_tok_s
    assert study.harmless.set_index("width").loc[4].lru_harmless <= 10
    row = study.harmless.iloc[-1]
    held = study.capacity[
        (study.capacity.width == row.width) & (study.capacity.capacity == row.lru_harmless)
        & (study.capacity.policy == "arrangement") & (study.capacity.eviction == "lru")
    ].iloc[0]  # fmt: skip
    assert f"{row.lru_harmless:.0f} graphs" in study.sentence()
    assert f"LRU: {held.tok_s:.1f} tok/s" in study.sentence(), "the rate at that capacity"


def test_curve_and_direct_simulation_price_alike(study):
    curve = study.capacity[(study.capacity.width == 8) & (study.capacity.policy == "arrangement")]
    for rule, eviction in (("LRU", "lru"), ("MIN (offline)", "min")):
        line = curve[curve.eviction == eviction].set_index("capacity").tok_s
        for row in study.policies[study.policies.rule == rule].itertuples():
            assert row.tok_s == pytest.approx(line[row.capacity], rel=1e-12)


def test_every_rule_at_every_capacity(study):
    assert list(dict.fromkeys(study.policies.rule)) == list(RULES)
    parts = study.policies[["hit_fraction", "eager_fraction", "capture_fraction"]]
    assert np.allclose(parts.sum(axis=1), 1)
    best = study.policies[study.policies.rule == "MIN, may run eager"].set_index("capacity")
    for row in study.policies.itertuples():
        assert row.hit_fraction <= best.hit_fraction[row.capacity] + 1e-12


def test_churn_tables(study):
    pools = study.churn.pools.set_index("pool")
    assert list(pools.index) == list(POOLS)
    assert (pools.slot_sets <= pools.canonical_keys).all()
    assert (pools.canonical_keys < pools.arrangement_keys).all()
    kept, loose = pools.loc["LIFO, compaction"], pools.loc["LIFO, no compaction"]
    assert kept.slot_fast > 0.9 > loose.slot_fast
    assert np.allclose(pools.hours, 0.25, rtol=0.05)
    assert list(dict.fromkeys(study.churn.rounds.scenario)) == list(ROUNDS)
    assert (study.churn.rounds.slot_declined == 0).all()


def test_what_is_modelled_says_so(study):
    assert (study.capacity.time == "modelled").all()
    assert (study.policies.time == "modelled").all()


@pytest.mark.parametrize(
    ("figure", "panels"),
    [
        (plots_caches.capacity_figure, 2),
        (plots_caches.policies_figure, 2),
        (plots_churn.churn_figure, 4),
    ],
)
def test_figures_have_titled_panels_with_units(study, figure, panels):
    axes = figure(study).axes
    assert len(axes) == panels
    for ax in axes:
        assert ax.get_title(loc="left")
        labels = ax.get_xlabel() + ax.get_ylabel()
        assert "modelled" in labels or "counted" in labels or "% of steps" in labels
        assert ax.get_legend() is not None


def test_a_cache_too_small_is_said():
    small = cache_study(
        Config(
            widths=[8], max_capacity=16, graph_capacity=8, seeds=2, steps=300, warmup_steps=50,
            churn_hours=0.02,
        )
    )  # fmt: skip
    assert "no cache of up to 16 graphs" in small.sentence()
    assert plots_caches.capacity_figure(small).axes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"widths": []}, "widths must list at least one number, got none"),
        ({"seeds": 1}, "seeds must be from 2 to"),
        ({"graph_capacity": 0}, "graph_capacity must be from 1 to"),
        ({"churn_load": 1.0}, "churn_load must be between 0 and 1, got 1.0"),
        ({"churn_hours": 0}, "churn_hours must be above 0"),
        ({"widths": [0]}, "widths must be from 1 to 1024, got 0"),
    ],
)
def test_a_configuration_says_what_is_wrong(changes, words):
    with pytest.raises(ValueError, match=words):
        Config(**changes)


def test_a_graph_cost_prices_what_is_captured():
    small = {"widths": [8], "seeds": 2, "steps": 300, "warmup_steps": 50, "churn_hours": 0.01,
             "max_capacity": 40}  # fmt: skip
    own, free = (cache_study(Config(**small, graph_ms=ms)) for ms in (None, 0.0))
    rates = [s.capacity[s.capacity.policy == "arrangement"].set_index("capacity").tok_s.groupby(
        level=0).mean() for s in (own, free)]  # fmt: skip
    assert (rates[1] > rates[0]).all() and "(modelled at 0 ms a graph)" in free.sentence()
    assert "(modelled)" in own.sentence()
    with pytest.raises(ValueError, match="graph_ms must be 0 or more"):
        Config(graph_ms=-1.0)


def test_the_notebook_is_stored_clean_and_short():
    body = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert len(body["cells"]) < 20
    tagged = [c for c in body["cells"] if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1
    assert all("  # " in line for line in tagged[0]["source"])
    for cell in body["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_notebook_parameters_are_the_configuration():
    body = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    values: dict = {}
    exec("".join(body["cells"][1]["source"]), values)
    values = {k: v for k, v in values.items() if not k.startswith("__") and k != "out"}
    assert json.loads(json.dumps(values)) == values
    assert Config(**values) == Config()

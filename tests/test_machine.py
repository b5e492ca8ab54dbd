"""Machine profiles: what is stored comes back, what is damaged is named, times are linear."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.counters import SCALARS, Counters, times
from verifylab.fit import fit_machine
from verifylab.machine import (
    COEFFICIENTS,
    Coefficient,
    MachineProfile,
    StepWork,
    load_profile,
)
from verifylab.published import DataError, data_dir

STORED = data_dir() / "machines" / "gb10-published.json"
GB10 = load_profile("gb10-published")
OPERATIONS = ("record", "instantiate", "exec_destroy", "graph_destroy")


def profile(**values):
    """A profile in which every coefficient differs, so that none can stand for another."""
    numbers = {name: float(i + 1) for i, name in enumerate(COEFFICIENTS)} | values
    return MachineProfile(
        name="toy", gpu="none", date="2026-01-01", kind="measured", gdn_layers=3, other_nodes=5,
        coefficients={n: Coefficient(v, v / 2, 2 * v, "made up") for n, v in numbers.items()},
    )  # fmt: skip


# --- what is stored ------------------------------------------------------------------------


def test_a_profile_survives_its_file(tmp_path):
    for original in (GB10, profile()):
        assert MachineProfile.from_json(original.to_json()) == original
        path = tmp_path / "copy.json"
        path.write_text(original.to_json(), encoding="utf-8")
        assert load_profile(str(path)) == original


def test_the_stored_profile_is_the_fit():
    assert fit_machine().to_json() == STORED.read_text(encoding="utf-8")


def test_every_coefficient_says_where_it_came_from():
    for name, coefficient in GB10.coefficients.items():
        assert len(coefficient.how) > 20, name
        assert name in COEFFICIENTS


def test_figure_by_figure_it_says_what_was_fitted_and_what_was_held_out():
    roles = {}
    for row in GB10.figures:
        roles.setdefault(row["role"], []).append(row)
        assert row["figure"]
        assert (data_dir() / "published" / row["file"]).is_file()
    assert set(roles) == {"fitted", "held out", "not used"}
    held = [(row["file"], row["figure"]) for row in roles["held out"]]
    assert ("canonical_ab.csv", "every row") in held
    assert ("key_counts.csv", "keys_measured") in held
    assert not {file for file, _ in held} & {"gdn_launches.csv"}
    fitted = [row["file"] for row in roles["fitted"]]
    assert "canonical_ab.csv" not in fitted and "key_counts.csv" not in fitted
    named = " ".join(row["into"] for row in roles["fitted"])
    for name in COEFFICIENTS:
        if GB10[name] and name not in ("eager_per_node_us", "launch_base_us"):
            stem = name.removesuffix("_per_node_us").removesuffix("_ms").removesuffix("_us")
            assert stem in named or name in named, name


# --- damage --------------------------------------------------------------------------------


def damaged(change):
    body = json.loads(GB10.to_json())
    change(body)
    return json.dumps(body)


def drop(*path):
    def change(body):
        for step in path[:-1]:
            body = body[step]
        del body[path[-1]]

    return damaged(change)


def put(value, *path):
    def change(body):
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    return damaged(change)


ROW = ("coefficients", "per_row_ms")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"schema":' * 100_000, "is not JSON"),
        ("1" * 5_000, "is not JSON"),
        ("[]", "must be a JSON object"),
        ("5", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "lacks the field 'schema'"),
        (put(2, "schema"), "has schema 2, this version reads 1"),
        (put("1", "schema"), "schema must be a whole number, got '1'"),
        (put(True, "schema"), "schema must be a whole number, got True"),
        *((drop(name), f"lacks the field '{name}'") for name in ("name", "gpu", "date", "kind")),
        (drop("coefficients"), "lacks the field 'coefficients'"),
        (drop("graph"), "lacks the field 'graph'"),
        (drop("graph", "gdn_layers"), "lacks the field 'gdn_layers'"),
        (drop("graph", "other_nodes"), "lacks the field 'other_nodes'"),
        (put(None, "name"), "name must be text, got None"),
        (put(["x"], "gpu"), "gpu must be text"),
        (put("guessed", "kind"), "kind must be one of published, measured, host, got 'guessed'"),
        (put([], "graph"), r"graph must be an object, got \[\]"),
        (put(0, "graph", "gdn_layers"), "gdn_layers must be from 1 to .*got 0"),
        (put(10**30, "graph", "gdn_layers"), "gdn_layers must be from 1 to"),
        (put(48.5, "graph", "gdn_layers"), "gdn_layers must be a whole number, got 48.5"),
        (put("48", "graph", "gdn_layers"), "gdn_layers must be a whole number, got '48'"),
        (put(-1, "graph", "other_nodes"), "other_nodes must be from 0 to .*got -1"),
        (put([], "coefficients"), "coefficients must be an object"),
        (put("x", "figures"), "figures must be a list"),
        (put({}, "figures"), "figures must be a list"),
        (put(["x"], "figures"), "figures must be a list of objects"),
        (put(5, "notes"), "notes must be text"),
        (put(3, *ROW), "coefficient per_row_ms must be an object, got 3"),
        (put([1, 2, 3], *ROW), "coefficient per_row_ms must be an object"),
        *((drop(*ROW, k), f"per_row_ms lacks the field '{k}'") for k in ("value", "low", "high")),
        (put("2.4", *ROW, "value"), "per_row_ms: value must be a number, got '2.4'"),
        (put(True, *ROW, "value"), "per_row_ms: value must be a number, got True"),
        (put(None, *ROW, "high"), "per_row_ms: high must be a number, got None"),
        (put(math.nan, *ROW, "value"), "per_row_ms: value must be a finite number .*got nan"),
        (put(math.inf, *ROW, "high"), "per_row_ms: high must be a finite number .*got inf"),
        (put(10**400, *ROW, "high"), "per_row_ms: high must be a finite number"),
        (put(-1, *ROW, "low"), "per_row_ms: .*0 <= low <= value <= high, got low=-1.0"),
        (put(3.0, *ROW, "low"), "per_row_ms: .*low <= value"),
        (put(0.1, *ROW, "high"), "per_row_ms: .*low <= value <= high"),
        (put(5, *ROW, "how"), "per_row_ms: how must be text"),
        (drop(*ROW), r"lacks \['per_row_ms'\]"),
        (put({"value": 1, "low": 1, "high": 1}, "coefficients", "x_ms"), r"unknown \['x_ms'\]"),
    ],
)
def test_damage_is_one_sentence_that_names_the_field(tmp_path, text, message):
    path = tmp_path / "mine.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith("machine profile mine.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["value", "low", "schema", "x"]), inner, max_size=2),
    max_leaves=4,
), st.sampled_from([
    ("schema",), ("name",), ("graph",), ("graph", "gdn_layers"), ("coefficients",), ROW,
    (*ROW, "low"), (*ROW, "how"), ("figures",), ("notes",),
]))  # fmt: skip
def test_no_damage_escapes_as_another_error(value, path):
    try:
        MachineProfile.from_json(put(value, *path))
    except DataError as error:
        assert str(error).startswith("machine profile")


def test_a_cut_file_is_not_json():
    text = GB10.to_json()
    for stop in range(0, len(text) - 2, 97):
        with pytest.raises(DataError, match="is not JSON"):
            MachineProfile.from_json(text[:stop])


@pytest.mark.parametrize("name", ["none", "", "../machines/gb10-published", "a\\b", "a\0b"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(DataError, match=r"no machine profile .*there are: .*gb10-published"):
        load_profile(name)


@pytest.mark.parametrize("name", [None, 5, ["gb10-published"]])
def test_a_name_must_be_text(name):
    with pytest.raises(DataError, match="machine must be the name of a profile, got"):
        load_profile(name)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xff"}')
    for name in ("absent.json", "folder.json", "latin.json", "nul\0.json"):
        with pytest.raises(DataError, match=r"machine profile .* cannot be read"):
            load_profile(str(tmp_path / name))


def test_a_relative_path_is_found_from_a_notebooks_folder(tmp_path, monkeypatch):
    """A notebook's kernel runs in notebooks/; the profile lies where `calibrate` was called."""
    data = tmp_path / "data"
    for folder in (data / "published", data / "machines", tmp_path / "notebooks"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("VERIFYLAB_DATA", str(data))
    monkeypatch.chdir(tmp_path / "notebooks")

    def named(name):
        return replace(GB10, name=name).to_json()

    with pytest.raises(DataError, match="'mine.json' cannot be read: No such file .* data/machine"):
        load_profile("mine.json")
    # The nearest wins.
    for folder in (tmp_path, data / "machines", tmp_path / "notebooks"):
        (folder / "mine.json").write_text(named(folder.name))
        assert load_profile("mine.json").name == folder.name
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "other.json").write_text(named("other"))
    assert load_profile("runs/other.json").name == "other"
    with pytest.raises(DataError, match="cannot be read: No such file or directory$"):
        load_profile(str(tmp_path / "absent.json"))


@pytest.mark.parametrize(
    ("low", "value", "high"), [(1, 0, 2), (0, 3, 2), (-1, 0, 1), (0, math.nan, 1), (0, 1, math.inf)]
)
def test_a_coefficient_must_lie_within_its_interval(low, value, high):
    with pytest.raises(ValueError, match="finite 0 <= low <= value <= high"):
        Coefficient(value, low, high, "")


# --- times ---------------------------------------------------------------------------------


def test_times_of_one_dispatch_by_hand():
    toy = profile()
    work = StepWork(width=2, rows=7, nodes=11)
    c = {name: i + 1 for i, name in enumerate(COEFFICIENTS)}
    assert toy.body_ms(work) == pytest.approx(
        c["step_base_ms"] + 7 * c["per_row_ms"] + 2 * c["per_sequence_ms"]
        + 11 * c["per_node_us"] / 1e3
    )  # fmt: skip
    assert toy.launch_ms(11) == pytest.approx(
        (c["launch_base_us"] + 11 * c["launch_per_node_us"]) / 1e3
    )
    for operation in OPERATIONS:
        expected = c[f"{operation}_base_ms"] + 11 * c[f"{operation}_per_node_us"] / 1e3
        assert toy.operation_ms(operation, 11) == pytest.approx(expected)
    assert toy.eager_ms(11) == pytest.approx(11 * c["eager_per_node_us"] / 1e3)
    assert toy.nodes(4) == 3 * 4 + 5


COUNT = st.integers(0, 10**9)


@given(st.fixed_dictionaries({name: COUNT for name in SCALARS}))
def test_times_of_a_run_are_linear_in_its_counts(counts):
    toy = profile()
    once = times(counts, toy)
    twice = times({name: 2 * value for name, value in counts.items()}, toy)
    assert twice.total_ms == pytest.approx(2 * once.total_ms)
    alone = [times(dict.fromkeys(SCALARS, 0) | {name: v}, toy) for name, v in counts.items()]
    for part in ("work_ms", "launches_ms", "captures_ms", "total_ms"):
        assert sum(getattr(t, part) for t in alone) == pytest.approx(getattr(once, part))


def test_every_coefficient_matters_to_exactly_one_cause():
    counts = Counters(
        steps=1, dispatches=1, tokens=1, sequences=1, rows=1, hits=1, captures=1, evictions=1,
        eager=1, nodes_launched=1, nodes_captured=1, nodes_evicted=1, nodes_eager=1,
        updates=1, graph_launches=1, nodes_updated=1,
    )  # fmt: skip
    base = times(counts, profile())
    for name in COEFFICIENTS:
        more = times(counts, profile(**{name: 1000.0}))
        moved = [
            part
            for part in ("work_ms", "launches_ms", "captures_ms")
            if getattr(more, part) != getattr(base, part)
        ]
        graph_work = ("record", "instantiate", "update", "exec", "graph")
        expected = (
            "captures_ms" if name.startswith(graph_work)
            else "work_ms" if name in ("step_base_ms", "per_row_ms", "per_sequence_ms")
            else "launches_ms"
        )  # fmt: skip
        assert moved == [expected], name


def test_samples_stay_within_bounds_and_vary_independently():
    drawn = GB10.sample(4000, np.random.default_rng(0))
    assert list(drawn) == list(COEFFICIENTS)
    moving = []
    for name, values in drawn.items():
        c = GB10.coefficients[name]
        assert values.shape == (4000,)
        assert values.min() >= c.low and values.max() <= c.high
        if c.low == c.high:
            assert (values == c.value).all()
        else:
            moving.append(values)
            mean, spread = (c.low + c.value + c.high) / 3, c.high - c.low
            assert values.mean() == pytest.approx(mean, abs=0.02 * spread)
    assert np.abs(np.corrcoef(moving) - np.eye(len(moving))).max() < 0.07
    again = GB10.sample(4000, np.random.default_rng(0))
    assert all((again[name] == drawn[name]).all() for name in COEFFICIENTS)


def test_a_step_that_takes_no_time_is_refused():
    gb10 = load_profile("gb10-published")
    nothing = Coefficient(0.0, 0.0, 0.0, "")
    free = dict.fromkeys(COEFFICIENTS, nothing)
    with pytest.raises(ValueError, match="step_base_ms, .* must be above 0, so that a step takes"):
        replace(gb10, coefficients=free)
    text = replace(
        gb10, coefficients={**free, "per_node_us": Coefficient(1.0, 0.0, 1.0, "")}
    ).to_json()
    with pytest.raises(DataError, match="takes time"):
        MachineProfile.from_json(text.replace("1.0", "0.0"))


def test_a_name_too_long_for_a_file_is_no_profile():
    with pytest.raises(DataError, match="no machine profile 'aaa.*there are: gb10-published"):
        load_profile("a" * 300)
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        load_profile("a" * 300 + ".json")

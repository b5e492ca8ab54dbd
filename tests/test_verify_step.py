import ast
import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_case import Case, assert_close, assert_same

from verifylab.device.host import HostDevice
from verifylab.gdn_reference import recurrence, wy_form
from verifylab.launches import depth_runs, launches_per_layer
from verifylab.step_buffers import MAX_WIDTH, ROW_BUDGET
from verifylab.verify_shape import MAX_ROWS, SHAPES, VerifyShape
from verifylab.verify_step import FORMS, VerifyStep, consecutive

PUBLISHED = Path(__file__).parents[1] / "data" / "published"


def make_case(seed=0, rows=40, slots=12):
    step = VerifyStep(HostDevice(), "tiny", pool_slots=slots, max_rows=rows)
    return Case(step, rows, seed)


@pytest.fixture(scope="module")
def case():
    return make_case()


batches = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.permutations(range(12)).map(lambda p: list(p[:n])),
        st.lists(st.integers(1, 5), min_size=n, max_size=n),
    )
)


def test_gdn27b_has_the_published_sizes():
    with (PUBLISHED / "model_dims.csv").open() as file:
        dims = {row["name"]: int(row["value"]) for row in csv.DictReader(file)}
    shape = SHAPES["gdn27b"]
    assert shape.layers == dims["gdn_layers"]
    assert (shape.key_heads, shape.value_heads) == (dims["gdn_key_heads"], dims["gdn_value_heads"])
    assert (shape.key_dim, shape.value_dim) == (dims["gdn_key_dim"], dims["gdn_value_dim"])
    assert shape.conv_dim == dims["conv_dim"]
    assert shape.h_state_bytes == dims["h_state_bytes"]
    assert shape.conv_state_bytes == dims["conv_state_bytes"]
    assert shape.state_bytes_per_slot == dims["state_bytes_per_slot"]
    assert (ROW_BUDGET, MAX_WIDTH) == (dims["row_budget"], dims["max_verify_width"])


@pytest.mark.parametrize("rows", range(1, MAX_ROWS + 1))
@pytest.mark.parametrize("decay", [0.0, 0.3, 40.0])
def test_wy_form_equals_the_plain_recurrence(rows, decay):
    rng = np.random.default_rng(rows)
    q, k = rng.standard_normal((2, rows, 3, 16))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    v, state = rng.standard_normal((rows, 3, 8)), rng.standard_normal((3, 16, 8))
    g, beta = -decay * rng.random((rows, 3)), rng.random((rows, 3))
    for plain, chunk in zip(
        recurrence(q, k, v, g, beta, state), wy_form(q, k, v, g, beta, state), strict=True
    ):
        np.testing.assert_allclose(chunk, plain, rtol=1e-12, atol=1e-12)


def test_zero_strength_only_decays():
    rng = np.random.default_rng(3)
    q, k = rng.standard_normal((2, 4, 1, 8))
    state, g = rng.standard_normal((1, 8, 8)), -rng.random((4, 1))
    _, states = recurrence(q, k, rng.standard_normal((4, 1, 8)), g, np.zeros((4, 1)), state)
    np.testing.assert_allclose(states[-1], np.exp(g.sum()) * state, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("slots", "depths"),
    [
        ([0, 1], [4, 4]),
        ([3], [8]),
        ([5, 6, 7, 2, 9], [4, 4, 4, 2, 2]),
        ([4, 3], [5, 5]),
        ([0, 1, 2, 3, 4], [8, 8, 7, 6, 1]),
        ([], []),
    ],
)
def test_a_step_matches_the_float64_reference(case, form, slots, depths):
    assert_close(case.run(slots, depths, form), case.expected(slots, depths))


@settings(max_examples=25, deadline=None)
@given(batches)
def test_every_form_gives_the_same_numbers_to_the_bit(case, batch):
    direct = case.run(*batch, "direct")
    assert_same(case.run(*batch, "declined"), direct)
    assert_same(case.run(*batch, "indirect"), direct)


@settings(max_examples=25, deadline=None)
@given(batches)
def test_launches_follow_the_published_rule(case, batch):
    slots, depths = batch
    device, layers = case.step.device, case.step.shape.layers
    for form, want in (
        ("direct", int(launches_per_layer(slots, depths))),
        ("declined", 2 * sum(depths)),
        ("indirect", 2 * len(depth_runs(slots, depths))),
    ):
        before = device.launches
        graph = device.capture(case.step.body(slots, depths, form))
        assert device.launches - before == graph.nodes == layers * want
        device.destroy(graph)


def test_canonical_launch_counts_of_the_published_table(case):
    with (PUBLISHED / "gdn_launches.csv").open() as file:
        for row in csv.DictReader(file):
            fours, threes, twos = ast.literal_eval(row["multiset_k4_k3_k2"])
            depths = [4] * fours + [3] * threes + [2] * twos
            plan = case.step.plan(range(len(depths)), depths)
            assert len(plan) == case.step.shape.layers * int(row["canonical"])


@pytest.mark.parametrize("rows", range(2, MAX_ROWS + 1))
def test_a_shorter_verify_is_the_prefix_of_a_longer_one(case, rows):
    short, long = case.run([3, 4], [rows - 1] * 2), case.run([3, 4], [rows] * 2)
    np.testing.assert_array_equal(short["out"][:, : rows - 1], long["out"][:, : rows - 1])
    np.testing.assert_array_equal(short["h_state"][:, 3], long["h_snap"][:, rows - 2])
    np.testing.assert_array_equal(short["conv_state"][:, 3], long["conv_snap"][:, rows - 2])


@pytest.mark.parametrize("form", FORMS)
def test_rollback_leaves_the_state_of_the_accepted_prefix(case, form):
    slots, depths, accepted = [2, 3, 9], [4, 4, 3], [1, 4, 2]
    case.run(slots, depths, form)
    case.step.accept(slots, depths, accepted)
    got, row = case.results(), 0
    for slot, depth, count in zip(slots, depths, accepted, strict=True):
        # The accepted prefix alone, verified from the same start on the same inputs.
        alone = Case(case.step, case.rows, case.seed)
        alone.x, alone.g, alone.beta = (
            a[:, row : row + count] for a in (case.x, case.g, case.beta)
        )
        want = alone.expected([slot], [count])
        for name in ("h_state", "conv_state"):
            np.testing.assert_allclose(
                got[name][:, slot], want[name][:, slot], rtol=2e-5, atol=2e-6
            )
        row += depth


def test_slots_outside_the_batch_are_untouched(case):
    got = case.run([4, 5], [3, 3])
    others = [slot for slot in range(12) if slot not in (4, 5)]
    np.testing.assert_array_equal(got["h_state"][:, others], case.h0[:, others])
    np.testing.assert_array_equal(got["conv_state"][:, others], case.conv0[:, others])


def test_the_dense_stand_in_reads_every_byte():
    device = HostDevice()
    step = VerifyStep(device, "tiny", 2, max_rows=4, weight_bytes=16 * 1000)
    device.upload(step.weights, np.ones(4000, np.float32))
    device.run(step.body([0], [2]))
    assert device.download(step.sink).sum() == 4000.0
    assert len(step.plan([0], [2])) == step.shape.layers * (4 + 1)


def test_fast_path_is_decided_on_addresses():
    assert consecutive([100, 108, 116], 8)
    assert not consecutive([100], 8)
    assert not consecutive([108, 100], 8)
    assert not consecutive([100, 116], 8)


@pytest.mark.parametrize(
    ("slots", "depths", "form", "words"),
    [
        ([0, 0], [2, 2], "direct", "share a slot"),
        ([0], [9], "direct", "1 to 8 rows, got 9"),
        ([0], [0], "direct", "1 to 8 rows, got 0"),
        ([12], [2], "direct", "0 to 11, got 12"),
        ([0, 1], [2], "direct", "2 and 1"),
        (list(range(6)), [8] * 6, "direct", "max_rows=40 rows, got 48"),
        ([0], [2], "sideways", "'sideways'"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(case, slots, depths, form, words):
    with pytest.raises(ValueError, match=words):
        case.step.device.run(case.step.body(slots, depths, form))


@pytest.mark.parametrize("accepted", [[0, 2], [3, 2], [1]])
def test_accept_refuses_what_was_not_verified(case, accepted):
    with pytest.raises(ValueError, match="accepted must be|zip"):
        case.step.accept([0, 1], [2, 2], accepted)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key_dim": 24}, "power of two"),
        ({"key_dim": 256}, "power of two"),
        ({"value_heads": 5}, "multiple of key_heads"),
        ({"layers": 0}, "layers must be 1"),
        ({"value_dim": 48}, "above 32, of 32"),
        ({"value_dim": 2048}, "at most 1024"),
        ({"key_dim": 4, "value_dim": 1}, "multiple of 4 .16-byte accesses., got 2"),
    ],
)
def test_a_shape_the_kernels_do_not_take_is_refused(change, words):
    sizes = {"layers": 1, "key_heads": 2, "value_heads": 2, "key_dim": 16, "value_dim": 16}
    with pytest.raises(ValueError, match=words):
        VerifyShape("odd", **(sizes | change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": "huge"}, "gdn27b, small, tiny, got 'huge'"),
        ({"pool_slots": 0}, "pool_slots"),
        ({"max_rows": 0}, "max_rows"),
        ({"weight_bytes": 10}, "multiple of 16"),
    ],
)
def test_a_step_with_bad_sizes_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        VerifyStep(HostDevice(), **({"shape": "tiny", "pool_slots": 2} | change))


def test_nbytes_counts_what_the_host_allocated():
    step = VerifyStep(HostDevice(), "tiny", 3, max_rows=5)
    states = step.shape.state_bytes_per_slot * (3 + 5)
    assert (
        step.h_state.nbytes + step.h_snap.nbytes + step.conv_state.nbytes + (step.conv_snap.nbytes)
        == states
    )
    assert step.nbytes > states


@pytest.mark.parametrize("pool", ["h_state", "conv_state"])
def test_the_fast_path_asks_both_pools_for_consecutive_addresses(pool):
    device = HostDevice()

    def nodes(step, form):
        return device.capture(step.body([0, 1], [2, 2], form)).nodes

    step = VerifyStep(device, "tiny", pool_slots=4, max_rows=8)
    fast, declined = nodes(step, "direct"), nodes(step, "declined")
    assert fast < declined
    # Every second slot of a pool twice as large: ascending, one by one, and not adjacent.
    layers, slots, *rest = getattr(step, pool).shape
    setattr(step, pool, device.allocate((layers, 2 * slots, *rest), np.float32)[:, ::2])
    assert nodes(step, "direct") == declined

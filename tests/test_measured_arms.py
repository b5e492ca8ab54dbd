"""Both arms of the study with the real step as the captured body."""

from dataclasses import asdict

import numpy as np
import pytest
from devices import KINDS, make_device

from verifylab.experiment import Settings, run, run_on
from verifylab.machine import load_profile
from verifylab.policy import policy
from verifylab.verify_step import VerifyStep
from verifylab.workload import Workload

WORKLOAD = Workload((0.9, 0.7, 0.6), 0.5, output_tokens=20)
SETTINGS = Settings(width=4, steps=40, warmup_steps=0, capacity=1)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("arm", ["arrangement", "canonical"])
def test_counts_are_those_of_the_model(kind, arm):
    device = make_device(kind)
    step = VerifyStep(device, "tiny", pool_slots=8, max_rows=16, max_width=4)
    rng = np.random.default_rng(0)
    scalars = (2, 16, 6)
    step.load(rng.standard_normal((2, 16, 256)), -rng.random(scalars), rng.random(scalars))
    key_policy = policy(arm, None, row_budget=96, max_width=32)
    before = device.launches
    measured = run_on(
        device, WORKLOAD, key_policy, SETTINGS, lambda d: step.body(d.slots, d.depths),
        gdn_layers=step.shape.layers, other_nodes=0,
    )  # fmt: skip
    modelled = run(WORKLOAD, arm, None, load_profile("gb10-published"), SETTINGS)
    nodes = {name for name in asdict(modelled.counters) if "nodes" in name}
    for name, value in asdict(modelled.counters).items():
        # The profile has more layers and the nodes of the rest of the model; see below.
        if name not in nodes:
            assert np.array_equal(getattr(measured.counters, name), value), name
    assert measured.counters.captures > 0 and measured.counters.evictions > 0
    # What was recorded is what the counts say was captured.
    assert device.launches - before == measured.counters.nodes_captured > 0
    assert measured.device == device.name and measured.measured

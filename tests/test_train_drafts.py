"""The script behind the trace: what it can do without torch, and a tiny run with it."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verifylab.draft_trace import DraftTrace

SCRIPTS = Path(__file__).parent.parent / "scripts"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (the extra 'train')")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import train_drafts

    return train_drafts


def test_only_functions_import_torch():
    tree = ast.parse((SCRIPTS / "train_drafts.py").read_text())
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in top for alias in node.names}
    names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
    assert not {"torch", "draft_model"} & names
    done = subprocess.run(
        [sys.executable, "-c", "import sys, train_drafts; print('torch' in sys.modules)"],
        cwd=SCRIPTS, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_it_says_what_to_install(script, capsys):
    assert script.main([]) == 2
    assert "verifylab[train]" in capsys.readouterr().err


def test_texts_are_of_this_python_and_held_out_ones_apart(script):
    texts = script.sources()
    names = [name for name, _ in texts]
    assert len(set(names)) == len(names)
    assert "argparse" in names and any(n.startswith(script.PROSE) for n in names)
    assert not [n for n in names if "test" in n.split(".")]
    train, held = script.split(texts)
    assert len(train) + len(held) == len(texts)
    assert not {n for n, _ in train} & {n for n, _ in held}
    starts = script.prompts(held, 30, 1)
    assert starts.shape == (30, script.PROMPT_BYTES) and starts.dtype == np.uint8
    assert (starts[:, -1] == ord("\n")).all()
    assert np.array_equal(starts, script.prompts(held, 30, 1))
    assert not np.array_equal(starts, script.prompts(held, 30, 2))
    with pytest.raises(ValueError, match="sequences must be at most"):
        script.prompts(held[:1], 10**7, 0)


def test_what_is_written_is_a_trace(script, tmp_path):
    rng = np.random.default_rng(0)
    confidences = -rng.random((4, 6, 3)).astype(np.float32)
    accepted = rng.integers(0, 4, (4, 6))
    how = script.write(tmp_path, confidences, accepted, {"date": "2026-01-02"})
    trace = DraftTrace.load("mtp_drafts", tmp_path)
    assert np.array_equal(trace.accepted, accepted.ravel())
    assert np.array_equal(trace.log_confidences, confidences.reshape(-1, 3).astype(float))
    assert trace.how == json.loads(json.dumps(how)) and how["rows"] == 24


@needs_torch
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_tiny_run_end_to_end(script, temperature):
    import draft_model
    import torch

    text = torch.frombuffer(
        bytearray(b"def f(x):\n    return x + 1\n\n\n" * 400), dtype=torch.uint8
    )
    sizes = draft_model.Sizes(
        width=24, layers=2, orders=3, embedding=16, table_bits=10, head_width=16, window=32,
        batch=8, steps=60, head_steps=60, learning_rate=1e-2,
    )  # fmt: skip
    model, losses = draft_model.train(text, sizes, 3, report=lambda _: None)
    assert losses["loss"] < 2.5 and len(losses["head_losses"]) == 3
    starts = text[:80].numpy().reshape(2, 40)
    tokens, confidences, accepted = script.trace(model, starts, 48, temperature, 5)
    assert tokens.shape == (2, 51) and confidences.shape == (2, 48, 3)
    assert accepted.shape == (2, 48) and accepted.max() > 0 and (confidences <= 0).all()

    # Stepwise: the model fed with the whole text up to a place chooses what the trace says it
    # chose (greedy), and the heads' drafts there agree with it as far as the trace says.
    for place in (0, 1, 17, 47):
        so_far = np.concatenate([starts, tokens[:, :place]], 1)
        whole = torch.from_numpy(so_far).long()
        with torch.no_grad():
            hidden, _ = model.trunk(model.ngrams(whole), model.start(2))
            logits = model.output(hidden[:, -1])
            seen = np.concatenate([so_far, tokens[:, place : place + 1]], 1)
            drafts, logs = draft_model.draft(
                model, hidden[:, -1], torch.from_numpy(seen[:, -sizes.orders :]).long()
            )
        if temperature == 0.0:
            assert np.array_equal(logits.argmax(-1).numpy(), tokens[:, place])
        same = drafts.numpy() == tokens[:, place + 1 : place + 4]
        assert np.array_equal(np.cumprod(same, 1).sum(1), accepted[:, place])
        assert np.allclose(logs.clamp_max(0).numpy(), confidences[:, place], atol=1e-4)

    again = script.trace(model, starts, 48, temperature, 5)
    assert np.array_equal(again[0], tokens)

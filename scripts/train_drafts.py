"""Make `data/traces/mtp_drafts.parquet`: drafts of a real, if small, language model.

Trains the model of `draft_model.py` on text that comes with Python (the standard library's
sources and the language reference of `pydoc_data`), lets it go on from files that it has not
seen, and stores, for every token position of what it says, the log-confidences of three drafts
and how many of them the model would have accepted had a step started there. `data/traces/README.md`
says why it does not speak greedily. Needs the extra ``train`` (torch, CPU), and some five minutes
of two cores:

    pip install -e '.[train]' && python scripts/train_drafts.py
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import importlib.util
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

TRACES = Path(__file__).resolve().parent.parent / "data" / "traces"

#: Modules and packages of every CPython from 3.11 on, by name; tests among them are left out.
MODULES = (
    "argparse ast asyncio base64 bdb bisect calendar cmd code codecs collections concurrent "
    "configparser contextlib copy csv ctypes dataclasses datetime decimal difflib dis doctest "
    "email enum filecmp fileinput fnmatch fractions ftplib functools gettext glob gzip hashlib "
    "heapq html http imaplib importlib inspect io ipaddress json locale logging lzma mailbox "
    "mimetypes multiprocessing netrc ntpath numbers optparse os pathlib pdb pickle pickletools "
    "pkgutil platform plistlib poplib posixpath pprint profile pstats pydoc queue random re sched "
    "selectors shelve shlex shutil smtplib socket socketserver sqlite3 ssl statistics string "
    "subprocess symtable tarfile tempfile textwrap threading timeit token tokenize trace "
    "traceback turtle types typing unittest urllib uuid warnings wave weakref webbrowser wsgiref "
    "xml xmlrpc zipapp zipfile zoneinfo"
).split()
PROSE = "pydoc_data.topics"
HELD_OUT_EVERY = 8
PROMPT_BYTES = 256


def sources() -> list[tuple[str, bytes]]:
    """Texts by module name, in order: Python sources, then the topics of the language reference.

    Raises
    ------
    SystemExit
        When this Python comes without its sources.
    """
    texts = []
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        origin = Path(spec.origin)
        files = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
        for file in files:
            parts = file.relative_to(origin.parent).with_suffix("").parts
            if origin.name == "__init__.py":
                parts = (name, *parts)
            if not {"test", "tests"} & set(parts):
                texts.append((".".join(parts), file.read_bytes()))
    if len({name.split(".")[0] for name, _ in texts}) < 0.9 * len(MODULES):
        raise SystemExit("this Python comes without the sources of its standard library")
    from pydoc_data.topics import topics

    texts += [(f"{PROSE}:{key}", topics[key].encode()) for key in sorted(topics)]
    return texts


def split(texts: list[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], ...]:
    """Texts to train on, and held-out ones: every `HELD_OUT_EVERY`-th."""
    held = texts[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return [t for i, t in enumerate(texts) if (i + 1) % HELD_OUT_EVERY], held


def prompts(held: list[tuple[str, bytes]], count: int, seed: int) -> np.ndarray:
    """Give `count` stretches of `PROMPT_BYTES` from held-out texts, shape (count, bytes), uint8.

    Each ends with a whole line, at a place drawn over all held-out text.
    """
    ends = []
    for i, (_, text) in enumerate(held):
        places = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        ends += [(i, int(p)) for p in places if p >= PROMPT_BYTES]
    if len(ends) < count:
        raise ValueError(f"sequences must be at most {len(ends)} (held-out lines), got {count}")
    chosen = np.random.default_rng(seed).choice(len(ends), count, replace=False)
    rows = [held[i][1][p - PROMPT_BYTES : p] for i, p in (ends[c] for c in chosen)]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(count, PROMPT_BYTES)


def trace(
    model: Any, starts: np.ndarray, length: int, temperature: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Let the model speak and draft at every place.

    Returns
    -------
    tokens : (sequences, length + 3) int64
    log_confidences : (sequences, length, 3) float32
    accepted : (sequences, length) int64
        Drafts in a row that equal the model's own choice, had a step started there.
    """
    import draft_model
    import torch

    said = torch.from_numpy(starts.copy())
    tokens, hidden = draft_model.decode(model, said, length, temperature, seed)
    orders = model.sizes.orders
    text = torch.cat([said[:, said.shape[1] - orders + 1 :].long(), tokens[:, :length]], 1)
    recent = text.unfold(1, orders, 1)  # the last tokens at each place, its own included
    drafts, confidences = (
        torch.stack(part)
        for part in zip(
            *(draft_model.draft(model, h, r) for h, r in zip(hidden, recent, strict=True)),
            strict=True,
        )
    )
    ahead = tokens.unfold(1, draft_model.HEADS, 1)[:, 1 : length + 1]
    accepted = (drafts == ahead).long().cumprod(-1).sum(-1)
    return tokens.numpy(), confidences.clamp_max(0).numpy(), accepted.numpy()


def write(
    folder: Path, confidences: np.ndarray, accepted: np.ndarray, how: dict[str, Any]
) -> dict[str, Any]:
    """Write ``mtp_drafts.parquet`` and, beside it, how it was made; return the latter."""
    import pandas as pd

    count, length, drafts = confidences.shape
    columns: dict[str, np.ndarray] = {
        "sequence": np.repeat(np.arange(count, dtype=np.int32), length),
        "position": np.tile(np.arange(length, dtype=np.int32), count),
    }
    for d in range(drafts):
        columns[f"logc{d + 1}"] = confidences[..., d].astype(np.float32).ravel()
    columns["accepted"] = accepted.astype(np.int8).ravel()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mtp_drafts.parquet"
    pd.DataFrame(columns).to_parquet(path, index=False, compression="zstd")
    reach = [(accepted >= d).mean() for d in range(drafts + 1)]
    how = {
        "schema": 1,
        "rows": count * length,
        "sequences": count,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "acceptance": [round(float(reach[d + 1] / reach[d]), 4) for d in range(drafts)],
        "tokens_per_step_at_every_position": round(float(1 + accepted.mean()), 4),
        **how,
    }
    (folder / "mtp_drafts.json").write_text(json.dumps(how, indent=1) + "\n", encoding="utf-8")
    return how


def main(arguments: list[str] | None = None) -> int:
    """Train, decode, draft, store; return the exit code."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--steps", type=int, default=500, help="optimiser steps of the trunk")
    words.add_argument("--sequences", type=int, default=500)
    words.add_argument("--length", type=int, default=256, help="positions of each sequence")
    words.add_argument("--temperature", type=float, default=0.8, help="0: greedy")
    words.add_argument("--out", type=Path, default=TRACES)
    chosen = words.parse_args(arguments)
    try:
        import torch
    except ImportError:
        print("error: torch is missing: pip install 'verifylab[train]'", file=sys.stderr)
        return 2
    import draft_model

    torch.set_num_threads(2)
    began = time.monotonic()
    texts, held = split(sources())
    starts = prompts(held, chosen.sequences, chosen.seed)
    joined = b"\0".join(text for _, text in texts)
    sizes = draft_model.Sizes(steps=chosen.steps)
    model, losses = draft_model.train(
        torch.frombuffer(bytearray(joined), dtype=torch.uint8), sizes, chosen.seed
    )
    tokens, confidences, accepted = trace(
        model, starts, chosen.length, chosen.temperature, chosen.seed
    )
    print(bytes(tokens[0].astype(np.uint8)).decode(errors="replace"))
    how = {
        "command": "python scripts/train_drafts.py"
        + "".join(f" --{k} {getattr(chosen, k)}" for k in
                  ("seed", "steps", "sequences", "length", "temperature")),
        "date": dt.date.today().isoformat(),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cpu_minutes": round(time.process_time() / 60, 1),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "temperature": chosen.temperature,
        "sizes": {name: getattr(sizes, name) for name in sizes.__dataclass_fields__},
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss_nats_per_byte": round(losses["loss"], 4),
        "head_losses_nats_per_byte": [round(v, 4) for v in losses["head_losses"]],
        "trained_on": {
            "bytes": len(joined),
            "texts": len(texts),
            "sha256": hashlib.sha256(joined).hexdigest(),
            "tokens_seen": (sizes.steps + sizes.head_steps) * sizes.batch * sizes.window,
        },
        "held_out": sorted({name for name, _ in held}),
    }  # fmt: skip
    done = write(chosen.out, confidences, accepted, how)
    print(json.dumps({k: done[k] for k in ("acceptance", "rows", "minutes")}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A small byte-level language model with three multi-token-prediction heads (torch, CPU).

The trunk is a stack of minimal gated recurrences (Feng et al. 2024: gates from the input alone, so
a window is a few large matrix products) over hashed n-gram embeddings, which give a small model
trained for minutes a vocabulary. The heads are DeepSeek-V3's shape: head d takes the state of the
one before it and the token just drafted, and shares the trunk's output layer. Head 1 starts from
the trunk's state before the last token: what an engine holds when a verify step ends. Everything a
step drafts therefore follows from the text alone, whatever depths were verified on the way.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

HEADS = 3
VOCABULARY = 256


@dataclass(frozen=True)
class Sizes:
    """Sizes and training of a model. `window` and `steps` in tokens and optimiser steps."""

    width: int = 256
    layers: int = 3
    orders: int = 6
    embedding: int = 128
    table_bits: int = 17
    head_width: int = 192
    window: int = 128
    batch: int = 48
    steps: int = 600
    learning_rate: float = 3e-3
    head_stride: int = 4


class Recurrence(nn.Module):
    """h[t] = (1 - z[t]) h[t-1] + z[t] c[t], with z and c from the input at t alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gates = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        with torch.no_grad():  # remember from 2 to some 60 tokens at the start
            self.gates.bias[:width] = -torch.linspace(0.0, 4.0, width)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x (B, T, width) and the state before it (B, width); return y and the last state."""
        z, c, g = self.gates(self.norm(x)).chunk(3, -1)
        z = torch.sigmoid(z)
        keep, add = (1.0 - z).unbind(1), (z * torch.tanh(c)).unbind(1)
        states = []
        for k, a in zip(keep, add, strict=True):
            state = k * state + a
            states.append(state)
        return x + self.out(torch.stack(states, 1) * F.silu(g)), state


class Model(nn.Module):
    """Trunk and heads."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        d, h = sizes.width, sizes.head_width
        self.table = nn.Embedding(1 << sizes.table_bits, sizes.embedding, sparse=True)
        nn.init.normal_(self.table.weight, std=0.05)
        self.into = nn.Linear(sizes.embedding, d)
        self.layers = nn.ModuleList(Recurrence(d) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(d)
        self.output = nn.Linear(d, VOCABULARY)
        self.token = nn.Embedding(VOCABULARY, h)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(d + h, h), nn.GELU(), nn.Linear(h, d)) for _ in range(HEADS)
        )
        self.head_norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(HEADS))

    def start(self, batch: int) -> list[torch.Tensor]:
        """Return the state before any token."""
        return [torch.zeros(batch, self.sizes.width) for _ in self.layers]

    def ngrams(self, tokens: torch.Tensor) -> torch.Tensor:
        """Table rows (B, T, orders) of the 1 to `orders` tokens that end at each place."""
        padded = F.pad(tokens, (self.sizes.orders - 1, 0))
        size, rows = tokens.shape[1], []
        running = torch.zeros_like(tokens)
        for k in range(self.sizes.orders):
            at = self.sizes.orders - 1 - k
            running = running * 0x9E3779B1 + padded[:, at : at + size] + 1 + k
            mixed = (running ^ (running >> 29)) * 0x2545F4914F6CDD1D
            rows.append((mixed >> 20) & ((1 << self.sizes.table_bits) - 1))
        return torch.stack(rows, -1)

    def trunk(
        self, rows: torch.Tensor, state: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Take table rows (B, T, orders); return hidden (B, T, width) and the state after."""
        x = self.into(self.table(rows).sum(-2))
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            x, last = layer(x, before)
            after.append(last)
        return self.norm(x), after

    def head(self, depth: int, state: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """State (..., width) of head `depth` after `token`; `output` turns it into logits."""
        joined = torch.cat([state, self.token(token)], -1)
        return self.head_norms[depth](state + self.heads[depth](joined))


def train(text: torch.Tensor, sizes: Sizes, seed: int, report=print) -> tuple[Model, dict]:
    """Train on `text` (uint8, one long run of tokens); return the model and its last losses.

    Losses are nats a byte, means over the last tenth of the steps: ``loss`` of the model,
    ``head_losses`` of the heads on the text (not on what the model would say).
    """
    torch.manual_seed(seed)
    model = Model(sizes)
    dense = [p for name, p in model.named_parameters() if not name.startswith("table")]
    optimisers = (
        torch.optim.AdamW(dense, sizes.learning_rate, betas=(0.9, 0.98), weight_decay=0.01),
        torch.optim.SparseAdam([model.table.weight], sizes.learning_rate),
    )
    warmup = max(1, sizes.steps // 20)
    span = torch.arange(sizes.window + HEADS + 1)
    history = []
    began = time.monotonic()
    for step in range(sizes.steps):
        rate = min(1.0, (step + 1) / warmup) * (
            0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / sizes.steps))
        )
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = sizes.learning_rate * rate
            optimiser.zero_grad(set_to_none=True)
        starts = torch.randint(len(text) - len(span), (sizes.batch, 1))
        tokens = text[starts + span].long()
        hidden, _ = model.trunk(model.ngrams(tokens[:, : sizes.window]), model.start(sizes.batch))
        losses = [_loss(model.output(hidden), tokens[:, 1 : sizes.window + 1])]
        # The heads learn from a share of the positions and leave the trunk as it is.
        at = torch.arange(step % sizes.head_stride, sizes.window, sizes.head_stride)
        state = hidden[:, at].detach()
        for depth in range(HEADS):
            state = model.head(depth, state, tokens[:, at + 1 + depth])
            losses.append(_loss(model.output(state), tokens[:, at + 2 + depth]))
        sum(losses).backward()
        nn.utils.clip_grad_norm_(dense, 1.0)
        for optimiser in optimisers:
            optimiser.step()
        history.append([float(loss.detach()) for loss in losses])
        if step % 50 == 49:
            shown = " ".join(f"{v:.3f}" for v in torch.tensor(history[-50:]).mean(0).tolist())
            report(f"step {step + 1}/{sizes.steps}: {shown} ({time.monotonic() - began:.0f} s)")
    last = torch.tensor(history[-max(1, sizes.steps // 10) :]).mean(0).tolist()
    return model, {"loss": last[0], "head_losses": last[1:]}


def _loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), target.reshape(-1))


@torch.no_grad()
def decode(
    model: Model, prompts: torch.Tensor, length: int, temperature: float, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Say what comes after the prompts, (B, P) uint8, all of one length.

    At temperature 0 the model's choice is its argmax. Above, it is a sample, drawn once for every
    sequence and place (Gumbel noise on the logits): the choice at a place follows from the text
    before it and nothing else, so it is the same whatever an arm verified on the way there.

    Returns
    -------
    tokens : (B, length + HEADS) int64
        The model's choice at each place.
    hidden : (B, length, width) float32
        The trunk's state before each of the first `length` tokens: what head 1 starts from.
    """
    noise = torch.Generator().manual_seed(seed)
    recent = prompts.long()
    hidden, state = model.trunk(model.ngrams(recent), model.start(len(prompts)))
    last = hidden[:, -1]
    tokens, kept = [], []
    for place in range(length + HEADS):
        if place < length:
            kept.append(last)
        logits = model.output(last)
        uniform = torch.rand(logits.shape, generator=noise).clamp_min(1e-30)
        token = (logits - temperature * uniform.log().neg().log()).argmax(-1)
        tokens.append(token)
        recent = torch.cat([recent, token[:, None]], 1)[:, -model.sizes.orders :]
        step, state = model.trunk(model.ngrams(recent)[:, -1:], state)
        last = step[:, -1]
    return torch.stack(tokens, 1), torch.stack(kept, 1)


@torch.no_grad()
def draft(model: Model, hidden: torch.Tensor, token: torch.Tensor) -> tuple:
    """Draft `HEADS` tokens after `token` (...,) from `hidden` (..., width), each head's argmax.

    Returns
    -------
    drafts : (..., HEADS) int64
    log_confidences : (..., HEADS) float32
        Log-probability that the head gives to its own draft.
    """
    drafts, confidences, state = [], [], hidden
    for depth in range(HEADS):
        state = model.head(depth, state, token)
        best = model.output(state).log_softmax(-1).max(-1)
        drafts.append(best.indices)
        confidences.append(best.values)
        token = best.indices
    return torch.stack(drafts, -1), torch.stack(confidences, -1)

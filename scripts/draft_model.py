"""A small byte-level language model with three multi-token-prediction heads (torch, CPU).

The trunk is a stack of minimal gated recurrences (Feng et al. 2024: gates from the input alone, so
a window is a few large matrix products) over hashed n-gram embeddings, which give a small model
trained for minutes a vocabulary. The heads are shaped as DeepSeek-V3's: head d takes the state of
the one before it and the embedding of the token just drafted, and shares the trunk's embedding and
output layer. Head 1 starts from the trunk's state before the last token: what an engine holds when
a verify step ends. Everything a step drafts therefore follows from the text alone, whatever depths
were verified on the way. The heads are trained after the trunk, which then stays as it is.
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
    head_width: int = 256
    window: int = 128
    batch: int = 24
    steps: int = 500
    head_steps: int = 250
    learning_rate: float = 3e-3
    head_stride: int = 2


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
        d, e, h = sizes.width, sizes.embedding, sizes.head_width
        self.table = nn.Embedding(1 << sizes.table_bits, e, sparse=True)
        nn.init.normal_(self.table.weight, std=0.05)
        self.into = nn.Linear(e, d)
        self.layers = nn.ModuleList(Recurrence(d) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(d)
        self.output = nn.Linear(d, VOCABULARY)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(d + e, h), nn.GELU(), nn.Linear(h, d)) for _ in range(HEADS)
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

    def embed(self, rows: torch.Tensor) -> torch.Tensor:
        """Sum the table rows (..., orders) to embeddings (..., embedding)."""
        return self.table(rows).sum(-2)

    def trunk(
        self, rows: torch.Tensor, state: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Take table rows (B, T, orders); return hidden (B, T, width) and the state after."""
        x = self.into(self.embed(rows))
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            x, last = layer(x, before)
            after.append(last)
        return self.norm(x), after

    def head(self, depth: int, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """State (..., width) of head `depth` after the token whose table rows are given."""
        joined = torch.cat([state, self.embed(rows)], -1)
        return self.head_norms[depth](state + self.heads[depth](joined))


def train(text: torch.Tensor, sizes: Sizes, seed: int, report=print) -> tuple[Model, dict]:
    """Train trunk, then heads, on `text` (uint8, one long run of tokens).

    Returns
    -------
    model : Model
    losses : dict
        Nats a byte on the training text, means over the last tenth of the steps: ``loss`` of the
        model, ``head_losses`` of the heads (against the text, not what the model would say).
    """
    torch.manual_seed(seed)
    model = Model(sizes)
    heads = [p for name, p in model.named_parameters() if name.startswith("head")]
    table = model.table.weight
    trunk = [p for p in model.parameters() if p is not table and all(p is not h for h in heads)]

    def trunk_loss(tokens: torch.Tensor, _: int) -> list[torch.Tensor]:
        rows = model.ngrams(tokens[:, : sizes.window])
        hidden, _ = model.trunk(rows, model.start(sizes.batch))
        return [_loss(model.output(hidden), tokens[:, 1 : sizes.window + 1])]

    def head_losses(tokens: torch.Tensor, step: int) -> list[torch.Tensor]:
        rows = model.ngrams(tokens)
        with torch.no_grad():
            hidden, _ = model.trunk(rows[:, : sizes.window], model.start(sizes.batch))
        at = torch.arange(step % sizes.head_stride, sizes.window, sizes.head_stride)
        state, losses = hidden[:, at], []
        for depth in range(HEADS):
            state = model.head(depth, state, rows[:, at + 1 + depth])
            losses.append(_loss(model.output(state), tokens[:, at + 2 + depth]))
        return losses

    loss = _fit(text, sizes, sizes.steps, trunk, table, trunk_loss, report)
    for parameter in (*trunk, table):
        parameter.requires_grad_(False)
    return model, {
        "loss": loss[0],
        "head_losses": _fit(text, sizes, sizes.head_steps, heads, None, head_losses, report),
    }


def _fit(text, sizes, steps, dense, table, losses_of, report) -> list[float]:
    """Minimise the sum of `losses_of(tokens, step)` over windows of `text`; give the last ones."""
    optimisers: list = [
        torch.optim.AdamW(dense, sizes.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    ]
    if table is not None:
        optimisers.append(torch.optim.SparseAdam([table], sizes.learning_rate))
    warmup = max(1, steps // 20)
    span = torch.arange(sizes.window + HEADS + 1)
    history = []
    began = time.monotonic()
    for step in range(steps):
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = sizes.learning_rate * min(1.0, (step + 1) / warmup) * cosine
            optimiser.zero_grad(set_to_none=True)
        starts = torch.randint(len(text) - len(span), (sizes.batch, 1))
        losses = losses_of(text[starts + span].long(), step)
        torch.stack(losses).sum().backward()
        nn.utils.clip_grad_norm_(dense, 1.0)
        for optimiser in optimisers:
            optimiser.step()
        history.append([float(loss.detach()) for loss in losses])
        if step % 50 == 49:
            shown = " ".join(f"{v:.3f}" for v in torch.tensor(history[-50:]).mean(0).tolist())
            report(f"step {step + 1}/{steps}: {shown} ({time.monotonic() - began:.0f} s)")
    return torch.tensor(history[-max(1, steps // 10) :]).mean(0).tolist()


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
def draft(model: Model, hidden: torch.Tensor, recent: torch.Tensor) -> tuple:
    """Draft `HEADS` tokens, each head's argmax.

    Parameters
    ----------
    model : Model
    hidden : (n, width) float32
        The trunk's state before the last token.
    recent : (n, orders) int64
        The text's last tokens.

    Returns
    -------
    drafts : (n, HEADS) int64
    log_confidences : (n, HEADS) float32
        Log-probability that the head gives to its own draft.
    """
    drafts, confidences, state = [], [], hidden
    for depth in range(HEADS):
        state = model.head(depth, state, model.ngrams(recent)[:, -1])
        best = model.output(state).log_softmax(-1).max(-1)
        drafts.append(best.indices)
        confidences.append(best.values)
        recent = torch.cat([recent[:, 1:], best.indices[:, None]], 1)
    return torch.stack(drafts, -1), torch.stack(confidences, -1)

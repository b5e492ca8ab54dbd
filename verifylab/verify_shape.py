"""Sizes of the gated-delta-net layers that a verify step runs through."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONV_TAPS", "MAX_ROWS", "SHAPES", "VerifyShape"]

#: Taps of the causal convolution (`data/published/model_dims.csv`, row ``conv_kernel``).
CONV_TAPS = 4
#: Most rows of one sequence that the kernels take: 7 drafts and the certain token.
MAX_ROWS = 8
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class VerifyShape:
    """Sizes of one stack of gated-delta-net layers.

    Attributes
    ----------
    name : str
        What figures and errors call it.
    layers : int
        Gated-delta-net layers.
    key_heads, value_heads : int
        Heads; each key head serves ``value_heads // key_heads`` value heads.
    key_dim, value_dim : int
        Channels of a head. The kernels want `key_dim` to be 4 times a power of two, at most 128,
        and `value_dim` a multiple of ``key_dim / 4`` and, above 32, of 32; at most 1024.

    Raises
    ------
    ValueError
        When a size is one that the kernels do not take.
    """

    name: str
    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        for field in ("layers", "key_heads", "value_heads", "key_dim", "value_dim"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be 1 or more, got {getattr(self, field)}")
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"value_heads must be a multiple of key_heads ({self.key_heads}), "
                f"got {self.value_heads}"
            )
        lanes = self.key_dim // 4
        if self.key_dim % 4 or lanes & (lanes - 1) or lanes > 32:
            raise ValueError(
                f"key_dim must be 4 times a power of two, at most 128, got {self.key_dim}"
            )
        if (
            self.value_dim % lanes
            or (self.value_dim > 32 and self.value_dim % 32)
            or self.value_dim > 1024
        ):
            raise ValueError(
                f"value_dim must be a multiple of {lanes} (key_dim / 4) and, above 32, of 32, "
                f"at most 1024; got {self.value_dim}"
            )
        if self.conv_dim % 4:
            raise ValueError(
                "value_heads * value_dim must be a multiple of 4 (16-byte accesses), got "
                f"{self.value_heads * self.value_dim}"
            )

    @property
    def conv_dim(self) -> int:
        """Channels that the convolution runs over: queries, keys, values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def h_state_bytes(self) -> int:
        """Bytes of the recurrent state, a layer and slot (FP32)."""
        return _FLOAT_BYTES * self.value_heads * self.key_dim * self.value_dim

    @property
    def conv_state_bytes(self) -> int:
        """Bytes of the convolution state, a layer and slot (FP32)."""
        return _FLOAT_BYTES * CONV_TAPS * self.conv_dim

    @property
    def state_bytes_per_slot(self) -> int:
        """Bytes of both states of one slot, all layers."""
        return self.layers * (self.h_state_bytes + self.conv_state_bytes)

    @property
    def defines(self) -> tuple[str, ...]:
        """Compiler options that give `kernels.cu` these sizes."""
        return (
            f"-DVL_KEY_HEADS={self.key_heads}",
            f"-DVL_VALUE_HEADS={self.value_heads}",
            f"-DVL_KEY_DIM={self.key_dim}",
            f"-DVL_VALUE_DIM={self.value_dim}",
        )

    def weights_per_layer(self, weight_bytes: int) -> int:
        """Return a step's dense-weight bytes as equal parts a layer, rounded up to 16 bytes."""
        return 16 * -(-weight_bytes // (16 * self.layers))

    def step_state_bytes(self, rows: int) -> int:
        """State bytes that verifying `rows` rows of one sequence moves on the fast path, a layer.

        Each state is read once and written once a row: the snapshots, then the live state.
        Inputs and outputs, which are small beside it, are left out.
        """
        return (1 + rows) * (self.h_state_bytes + self.conv_state_bytes)


#: ``gdn27b``: the 27B hybrid of `data/published/model_dims.csv`. ``small`` fits any GPU beside
#: other work; ``tiny`` is for tests (sizes that differ from each other, so that a transposed
#: index shows).
SHAPES: dict[str, VerifyShape] = {
    shape.name: shape
    for shape in (
        VerifyShape("gdn27b", 48, key_heads=16, value_heads=48, key_dim=128, value_dim=128),
        VerifyShape("small", 8, key_heads=4, value_heads=12, key_dim=64, value_dim=64),
        VerifyShape("tiny", 2, key_heads=2, value_heads=6, key_dim=16, value_dim=32),
    )
}

"""What a linear layer keeps of a sequence, and where: rings of its last states and inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WINDOW = 0  # the window of a linear layer, which reads no column of the cache
Rows = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class LinearShape:
    """What a model's linear layers keep of a sequence. `layers`: their indices; `kernel`: inputs that a convolution
    sees, the newest included."""

    layers: tuple[int, ...]
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: queries, keys and values side by side."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    def parts_of(self, projected: Tensor) -> Rows:
        """projected [n, conv_dim + (value_dim + 2) * value_heads] -> views of it: the convolution's inputs, z,
        b and a."""
        heads = self.num_value_heads
        mixed, z, b, a = projected.split([self.conv_dim, heads * self.value_dim, heads, heads], -1)
        return mixed, z, b, a

    def ring_sizes(self, num_states: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of one layer's rings: states [R, 1, 1, value_heads, key_dim, value_dim], inputs [R + kernel - 2, 1, 1,
        conv_dim]. The third dimension is where the buffers of other layers count positions."""
        states = (num_states, 1, 1, self.num_value_heads, self.key_dim, self.value_dim)
        return states, (num_states + self.kernel - 2, 1, 1, self.conv_dim)


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the rings a forward reads and writes, for every layer; all device tensors. `chunked`: whether it is a
    prefill."""

    begun: Tensor
    state: Tensor
    next_states: Tensor
    past: Tensor
    past_known: Tensor
    inputs: Tensor
    chunked: bool

    @staticmethod
    def of(at: Tensor, shape: LinearShape, num_states: int, chunked: bool) -> Places:
        """For tokens at positions `at` [n], in rings of `num_states`. A step has fewer tokens than that; of a prefill's
        states only the last is kept."""
        assert chunked or len(at) < num_states, f"a step of {len(at)} tokens in a ring of {num_states} states"
        num_inputs = num_states + shape.kernel - 2
        past = at[:1] + torch.arange(1 - shape.kernel, 0, device=at.device)
        following = at + 1
        return Places(
            begun=at[0] > 0,
            state=at[:1] % num_states,
            next_states=(following[-1:] if chunked else following) % num_states,
            past=past % num_inputs,
            past_known=(past >= 0)[:, None],
            inputs=at[-num_inputs:] % num_inputs,
            chunked=chunked,
        )

    def read(self, states: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's memory at the start of a forward, copied from its rings: [value_heads, key_dim, value_dim] and
        [kernel - 1, conv_dim]."""
        state = torch.where(self.begun, states.index_select(0, self.state).view(states.shape[3:]), 0.0)
        return state, torch.where(self.past_known, inputs.index_select(0, self.past).flatten(1), 0.0)

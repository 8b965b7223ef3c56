"""A decoder of the Llama family, written once over `Ops`: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

import torch
from octavo_kernels.ops import Ops, Step
from torch import Tensor

from octavo_worker.rope import tables
from octavo_worker.weights import Layer, Weights


class Decoder:
    """Holds weights and the buffers every step writes into. Nothing is allocated here once it is made."""

    def __init__(self, weights: Weights, ops: Ops, *, max_tokens: int, max_rows: int, max_context: int) -> None:
        a = weights.architecture
        self.weights, self.ops = weights, ops
        self.q_width, self.kv_width = a.heads * a.head_dim, a.kv_heads * a.head_dim
        self.cos, self.sin = tables(weights.rope_frequencies, max_context)

        def buffer(rows: int, width: int) -> Tensor:
            return weights.embedding.new_empty(rows, width)

        self.residual, self.normed = buffer(max_tokens, a.hidden), buffer(max_tokens, a.hidden)
        self.added = buffer(max_tokens, a.hidden)
        self.qkv = buffer(max_tokens, self.q_width + 2 * self.kv_width)
        self.attended = buffer(max_tokens, self.q_width)
        self.gate_up, self.gated = buffer(max_tokens, 2 * a.intermediate), buffer(max_tokens, a.intermediate)
        self.head_in, self.head_normed = buffer(max_rows, a.hidden), buffer(max_rows, a.hidden)
        self.head_out = buffer(max_rows, a.vocab)
        self.logits = self.head_out if self.head_out.dtype == torch.float32 else self.head_out.float()

    def forward(self, step: Step, pool: Tensor) -> Tensor:
        """Compute the step's tokens, writing their K and V; logits float32 [head rows, vocab]."""
        n, ops = step.num_tokens, self.ops
        ops.prepare(step)
        residual, added = self.residual[:n], self.added[:n]
        ops.take_rows(self.weights.embedding, step.token[:n], residual)
        for index, layer in enumerate(self.weights.layers):
            self.attend(layer, index, step, pool, first=index == 0)
            self.feed_forward(layer, n)
        residual.add_(added)
        return self.head(step)

    def attend(self, layer: Layer, index: int, step: Step, pool: Tensor, *, first: bool) -> None:
        """added = attention(norm(residual + added))"""
        n, ops, a = step.num_tokens, self.ops, self.weights.architecture
        residual, normed, added, qkv = self.residual[:n], self.normed[:n], self.added[:n], self.qkv[:n]
        ops.rms_norm(None if first else added, residual, layer.attention_norm, a.eps, normed)
        ops.linear(normed, layer.qkv, layer.qkv_bias, qkv)
        widths = [self.q_width, self.kv_width, self.kv_width]
        q, k, v = (part.view(n, -1, a.head_dim) for part in torch.split(qkv, widths, dim=1))
        ops.rope_and_write(q, k, v, self.cos, self.sin, pool, index, step)
        attended = self.attended[:n]
        ops.attention(q, pool, index, step, attended.view(n, a.heads, a.head_dim))
        ops.linear(attended, layer.output, layer.output_bias, added)

    def feed_forward(self, layer: Layer, n: int) -> None:
        """added = down(silu(gate) * up), of norm(residual + added)"""
        ops = self.ops
        normed, added, gate_up, gated = self.normed[:n], self.added[:n], self.gate_up[:n], self.gated[:n]
        ops.rms_norm(added, self.residual[:n], layer.feed_forward_norm, self.weights.architecture.eps, normed)
        ops.linear(normed, layer.gate_up, None, gate_up)
        ops.silu_mul(gate_up, gated)
        ops.linear(gated, layer.down, None, added)

    def head(self, step: Step) -> Tensor:
        """Only tokens that somebody samples after go through the final norm and the head."""
        n, ops = step.num_head_rows, self.ops
        head_in, normed, out = self.head_in[:n], self.head_normed[:n], self.head_out[:n]
        if n:
            ops.take_rows(self.residual[: step.num_tokens], step.head_token[:n], head_in)
            ops.rms_norm(None, head_in, self.weights.norm, self.weights.architecture.eps, normed)
            ops.linear(normed, self.weights.head, None, out)
        logits = self.logits[:n]
        if logits.data_ptr() != out.data_ptr():
            logits.copy_(out)
        return logits

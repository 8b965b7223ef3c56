"""A decoder of the Llama family, written once over `Ops`: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

from octavo_kernels.ops import Array, Ops, Sampling, Step

from octavo_worker.rope import tables
from octavo_worker.weights import Layer, Weights


class Decoder:
    """Weights, and the buffers that every step writes into; nothing is allocated here once it is made.

    `replay()` computes what `step` says: it writes K and V of the step's tokens into `pool` and the ids of what was
    sampled into `sampled`, int32 [most samples]. `logits` are float32 [most head rows, vocabulary].
    """

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        *,
        step: Step,
        sampling: Sampling,
        pool: Array,
        sampled: Array,
        dtype: str,
        max_context: int,
    ) -> None:
        a = weights.architecture
        self.weights, self.ops = weights, ops
        self.step, self.sampling, self.pool, self.sampled = step, sampling, pool, sampled
        self.cos, self.sin = map(ops.share, tables(weights.rope_frequencies, max_context, a.rope.magnitude))
        tokens, rows = len(step.token), len(step.head_token)

        def buffer(rows: int, width: int, dtype: str = dtype) -> Array:
            return ops.new_buffer((rows, width), dtype)

        self.residual, self.head_residual = buffer(tokens, a.hidden, "float32"), buffer(rows, a.hidden, "float32")
        self.normed, self.head_normed = buffer(tokens, a.hidden), buffer(rows, a.hidden)
        self.added, self.head_added = buffer(tokens, a.hidden), buffer(rows, a.hidden)
        self.qkv = buffer(tokens, a.q_width + 2 * a.kv_width)
        self.attended, self.gated = buffer(tokens, a.q_width), buffer(tokens, a.intermediate)
        self.logits = buffer(rows, a.vocab, "float32")
        self.replay = ops.capture(step, self.forward)

    def forward(self) -> None:
        """One step. What a layer adds to the residual is added by the norm that comes next."""
        self.ops.prepare(self.step)
        self.ops.take_tokens(self.sampling, self.step)
        self.ops.embed(self.step.tokens, self.weights.embedding, self.step.token, self.residual)
        for index, layer in enumerate(self.weights.layers):
            self.attend(layer, index)
            self.feed_forward(layer)
        self.head()
        self.ops.sample(self.logits, self.sampling, self.step, self.sampled)

    def attend(self, layer: Layer, index: int) -> None:
        """added = attention(norm(residual + added))"""
        ops, step, rows = self.ops, self.step, self.step.tokens
        added = self.added if index else None
        ops.rms_norm(rows, added, self.residual, layer.attention_norm, self.weights.architecture.eps, self.normed)
        ops.linear(rows, self.normed, layer.qkv, self.qkv)
        ops.rope_and_write(self.qkv, self.cos, self.sin, self.pool, index, step)
        window = self.weights.architecture.windows[index]
        ops.attention(self.qkv, self.pool, index, step, self.attended, window=window)
        ops.linear(rows, self.attended, layer.output, self.added)

    def feed_forward(self, layer: Layer) -> None:
        """added = down(silu(gate) * up), of norm(residual + added)"""
        ops, rows, eps = self.ops, self.step.tokens, self.weights.architecture.eps
        ops.rms_norm(rows, self.added, self.residual, layer.feed_forward_norm, eps, self.normed)
        ops.gated_linear(rows, self.normed, layer.gate, layer.up, self.gated)
        ops.linear(rows, self.gated, layer.down, self.added)

    def head(self) -> None:
        """Only tokens that somebody samples after go through the final norm and the head."""
        ops, rows, index, eps = self.ops, self.step.head_rows, self.step.head_token, self.weights.architecture.eps
        ops.take_rows(rows, self.residual, index, self.head_residual)
        ops.take_rows(rows, self.added, index, self.head_added)
        ops.rms_norm(rows, self.head_added, self.head_residual, self.weights.norm, eps, self.head_normed)
        ops.linear(rows, self.head_normed, self.weights.head, self.logits)

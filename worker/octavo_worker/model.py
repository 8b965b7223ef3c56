"""A decoder of the Llama family, written once over `Ops`: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

from collections.abc import Callable

from octavo_kernels.ops import Array, Masks, Ops, Sampling, Step

from octavo_worker.architecture import Architecture
from octavo_worker.rope import tables
from octavo_worker.weights import Layer, Weights


class Activations:
    """The buffers that every step writes into, with room for `tokens` tokens, `rows` head rows and `biased` biased ones."""

    def __init__(self, a: Architecture, ops: Ops, *, tokens: int, rows: int, biased: int, dtype: str) -> None:
        def buffer(rows: int, width: int, dtype: str = dtype) -> Array:
            return ops.new_buffer((rows, width), dtype)

        term = dtype if ops.ranks == 1 else "float32"  # ranks add up terms, and round none of them before

        self.residual, self.head_residual = buffer(tokens, a.hidden, "float32"), buffer(rows, a.hidden, "float32")
        self.normed, self.head_normed = buffer(tokens, a.hidden), buffer(rows, a.hidden)
        self.added, self.head_added = buffer(tokens, a.hidden, term), buffer(rows, a.hidden, term)
        self.qkv = buffer(tokens, a.q_width + 2 * a.kv_width)
        self.attended, self.gated = buffer(tokens, a.q_width), buffer(tokens, a.intermediate)
        self.logits = buffer(rows + biased, a.vocab, "float32")
        self.own_logits = self.logits if ops.ranks == 1 else buffer(rows, -(-a.vocab // ops.ranks), "float32")


class Decoder:
    """Weights and buffers; nothing is allocated here once it is made.

    `replay()` computes what `step` says: it writes K and V of the step's tokens into `pool`, the ids of what was sampled
    into `sampled`, int32 [most samples], and log-probabilities into `scores`, values and ids as in ops.Logprobs. `logits`
    are float32 [most head rows, then most samples, vocabulary]: behind the head rows lie those that have biases added.

    A rank of a tensor-parallel group has the weights of some heads, of some inner columns and of some of the vocabulary.
    The matrices that write to the residual then give terms of a sum; logits are gathered, and every rank samples.
    """

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        activations: Activations,
        *,
        step: Step,
        masks: Masks,
        sampling: Sampling,
        pool: Array,
        sampled: Array,
        scores: tuple[Array, Array],
        max_context: int,
        vocabulary: int,
        take_masks: Callable[[], None],
    ) -> None:
        """`vocabulary`: rows of the head that are tokens; none of the others is ever sampled. `take_masks` fills `masks`, in
        a step that is replayed with `replay_open`, once the logits are there."""
        self.weights, self.ops, self.activations = weights, ops, activations
        self.step, self.masks, self.sampling, self.pool = step, masks, sampling, pool
        self.sampled, self.scores = sampled, scores
        angles = tables(weights.rope_frequencies, max_context, weights.architecture.rope.magnitude)
        self.cos, self.sin = map(ops.share, angles)
        self.logits = activations.logits[:, :vocabulary]
        self.biased_logits = self.logits[len(activations.head_normed) :]
        self._take_masks = take_masks
        self.replay = ops.capture(step, self.forward)
        self.replay_open = ops.capture(step, self.forward_open) if ops.may_wait else None

    def forward(self) -> None:
        """One step."""
        self.layers()
        self.draw()

    def forward_open(self) -> None:
        """The same where masks come while it runs."""
        self.layers()
        self.ops.call(self._take_masks)
        self.draw()

    def layers(self) -> None:
        """Logits, from tokens. What a layer adds to the residual is added by the norm that comes next."""
        self.ops.prepare(self.step)
        self.ops.take_tokens(self.sampling, self.step)
        self.ops.embed(self.step.tokens, self.weights.embedding, self.step.token, self.activations.residual)
        for index, layer in enumerate(self.weights.layers):
            self.attend(layer, index)
            self.feed_forward(layer)
        self.head()

    def draw(self) -> None:
        """Tokens, from logits."""
        self.ops.bias_logits(self.logits, self.sampling, self.step, self.biased_logits)
        self.ops.mask_logits(self.logits, self.masks, self.step)
        self.ops.sample(self.logits, self.sampling, self.step, self.sampled)
        self.ops.logprobs(self.logits, self.sampling, self.step, *self.scores)

    def attend(self, layer: Layer, index: int) -> None:
        """added = attention(norm(residual + added))"""
        ops, step, rows, a, eps = self.ops, self.step, self.step.tokens, self.activations, self.weights.architecture.eps
        ops.rms_norm(rows, a.added if index else None, a.residual, layer.attention_norm, eps, a.normed)
        ops.linear(rows, a.normed, layer.qkv, a.qkv)
        ops.rope_and_write(a.qkv, self.cos, self.sin, self.pool, index, step)
        window = self.weights.architecture.windows[index]
        ops.attention(a.qkv, self.pool, index, step, a.attended, window=window)
        ops.linear(rows, a.attended, layer.output, a.added)
        ops.all_reduce(rows, a.added)

    def feed_forward(self, layer: Layer) -> None:
        """added = down(silu(gate) * up), of norm(residual + added)"""
        ops, rows, a, eps = self.ops, self.step.tokens, self.activations, self.weights.architecture.eps
        ops.rms_norm(rows, a.added, a.residual, layer.feed_forward_norm, eps, a.normed)
        ops.gated_linear(rows, a.normed, layer.gate, layer.up, a.gated)
        ops.linear(rows, a.gated, layer.down, a.added)
        ops.all_reduce(rows, a.added)

    def head(self) -> None:
        """Only tokens that somebody samples after go through the final norm and the head."""
        ops, rows, index, a = self.ops, self.step.head_rows, self.step.head_token, self.activations
        ops.take_rows(rows, a.residual, index, a.head_residual)
        ops.take_rows(rows, a.added, index, a.head_added)
        eps, head = self.weights.architecture.eps, self.weights.head
        ops.rms_norm(rows, a.head_added, a.head_residual, self.weights.norm, eps, a.head_normed)
        ops.linear(rows, a.head_normed, head, a.own_logits[:, : head.outputs])
        ops.all_gather(rows, a.own_logits, a.logits)

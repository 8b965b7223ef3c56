/* Biases of logits. A thread takes one row at a time. */

/* Whether the history ends with the tokens of the biases just before this one, all of them answered. */
static int is_in_context(const octavo_bias *bias, const int32_t *end, int32_t answered) {
    if (bias->context < 0 || bias->context > answered)
        return 0;
    for (int32_t i = 1; i <= bias->context; i++)
        if (end[-i] != bias[-i].token)
            return 0;
    return 1;
}

static void bias_logits(const void *arguments, octavo_thread *thread) {
    const octavo_bias_logits *a = arguments;
    const octavo_sampling *s = a->sampling;
    for (int64_t i; (i = octavo_next(thread)) < *a->step->num_biased;) {
        int32_t slot = a->step->bias_slot[i], length = s->length[slot];
        float *out = (float *)row_of(&a->out, i);
        memcpy(out, row_of(&a->logits, a->step->bias_row[i]), sizeof(float) * (size_t)a->logits.width);
        const octavo_bias *first = s->biases + slot * s->most_biases, *last = first + s->num_biases[slot];
        const int32_t *end = s->history + slot * s->history_width + length;
        for (const octavo_bias *bias = first; bias < last; bias++)
            if (length < bias->until && is_in_context(bias, end, length - s->num_prompt[slot]))
                out[bias->token] += bias->bias;
    }
}

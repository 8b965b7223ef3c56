/* Constrained answers: which logits count. */

/* Of 32 tokens at most. What is no number stays none: NaN - inf and inf - inf are NaN. */
static void mask_word(float *logits, uint32_t word, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        logits[i] = word >> i & 1 ? logits[i] : logits[i] - INFINITY;
}

static void mask_logits(const void *arguments, octavo_thread *thread) {
    const octavo_mask_logits *a = arguments;
    int32_t vocabulary = a->logits.width;
    for (int64_t i; (i = octavo_next(thread)) < *a->rows;) {
        float *logits = (float *)row_of(&a->logits, a->row[i]);
        const uint32_t *bits = a->bits + i * a->words;
        for (int32_t j = 0; j < vocabulary; j += 32)
            if (~bits[j / 32])
                mask_word(logits + j, bits[j / 32], vocabulary - j < 32 ? vocabulary - j : 32);
    }
}

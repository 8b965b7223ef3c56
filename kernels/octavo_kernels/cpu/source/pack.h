/* Putting weights into panels, quantising them where asked, and reading single rows of them again. */

static const uint16_t *half_at(const void *p) {
    return p;
}

INLINE float from_float16(uint16_t bits) {
#if LANES >= 8
    return _cvtsh_ss(bits);
#else
    _Float16 h;
    memcpy(&h, &bits, sizeof h);
    return (float)h;
#endif
}

INLINE uint16_t to_float16(float x) {
#if LANES >= 8
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
    _Float16 h = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
#endif
}

/* Where input k of output n lies within its panel; for INT4 the byte that holds it. */
INLINE int64_t place_of(const octavo_weight *w, int32_t n, int32_t k) {
    int32_t column = n % PANEL, quad = k % GROUP / 4;
    switch (w->type) {
    case OCTAVO_FLOAT32:
        return 4 * ((int64_t)k * PANEL + column);
    case OCTAVO_BFLOAT16:
        return 4 * ((int64_t)(k / 2) * PANEL + column) + 2 * (k % 2);
    case OCTAVO_INT4:
        return (int64_t)(k / GROUP) * GROUP * PANEL / 2 + 4 * (quad % 4 * PANEL + column) + k % 4;
    default:
        return 4 * ((int64_t)(k / 4) * PANEL + column) + k % 4;
    }
}

INLINE int64_t scale_place(const octavo_weight *w, int64_t n, int64_t group) {
    return (n / PANEL * (padded_inputs(w) / GROUP) + group) * PANEL + n % PANEL;
}

static void put_unsigned(const octavo_weight *w, char *panel, int32_t n, int32_t k, int value) {
    uint8_t *at = (uint8_t *)panel + place_of(w, n, k);
    if (w->type == OCTAVO_INT4 && k % GROUP >= GROUP / 2)
        *at = (uint8_t)((*at & 0x0f) | value << 4);
    else if (w->type == OCTAVO_INT4)
        *at = (uint8_t)((*at & 0xf0) | value);
    else
        *at = (uint8_t)value;
}

static void pack_floats(const octavo_weight *w, char *panel, int32_t n, const float *row) {
    for (int32_t k = 0; k < w->inputs; k++)
        if (w->type == OCTAVO_FLOAT32)
            memcpy(panel + place_of(w, n, k), row + k, 4);
        else {
            uint16_t bits = to_bfloat16(row[k]);
            memcpy(panel + place_of(w, n, k), &bits, 2);
        }
}

static void pack_int8(const octavo_weight *w, char *panel, int32_t n, const float *row) {
    float scale = largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, w->inputs) / 127;
    int32_t sum = 0;
    for (int32_t k = 0; k < w->inputs; k++) {
        int32_t q = scale > 0 ? (int32_t)rintf(row[k] / scale) : 0;
        panel[place_of(w, n, k)] = (char)q;
        sum += q;
    }
    ((float *)w->scale)[n] = scale;
    ((int32_t *)w->sum)[n] = sum;
}

/* INT4: from the least to the largest of a group in 15 steps; INT8_GROUPS: symmetric, 0 at 128. */
static void pack_group(const octavo_weight *w, char *panel, int32_t n, int32_t first, const float *row) {
    int32_t end = first + GROUP < w->inputs ? first + GROUP : w->inputs;
    int is_int4 = w->type == OCTAVO_INT4;
    float least = row[first], largest = row[first];
    for (int32_t k = first; k < end; k++) {
        least = fminf(least, row[k]);
        largest = fmaxf(largest, row[k]);
    }
    float span = is_int4 ? (largest - least) / 15 : fmaxf(largest, -least) / 127;
    uint16_t scale = to_float16(span), low = to_float16(least);
    float step = from_float16(scale), zero = is_int4 ? from_float16(low) : -128 * step;
    int top = is_int4 ? 15 : 255;
    for (int32_t k = first; k < end; k++) {
        float q = step > 0 ? rintf((row[k] - zero) / step) : is_int4 ? 0 : 128;
        put_unsigned(w, panel, n, k, q < 0 ? 0 : q > (float)top ? top : (int)q);
    }
    ((uint16_t *)w->scale)[scale_place(w, n, first / GROUP)] = scale;
    if (is_int4)
        ((uint16_t *)w->low)[scale_place(w, n, first / GROUP)] = low;
}

/* A GGUF block of 32 weights: a float16 step, for Q4_1 a float16 least, then nibbles (16 low ones first) or signed bytes. */
static void pack_block(const octavo_weight *w, char *panel, int32_t n, int32_t first, const uint8_t *block, int32_t source) {
    uint16_t scale, low = 0;
    memcpy(&scale, block, 2);
    if (source == OCTAVO_FROM_Q4_1)
        memcpy(&low, block + 2, 2);
    else
        low = to_float16(-8 * from_float16(scale));
    const uint8_t *q = block + (source == OCTAVO_FROM_Q4_1 ? 4 : 2);
    for (int32_t i = 0; i < GROUP; i++) {
        int value = source == OCTAVO_FROM_Q8_0 ? (int8_t)q[i] + 128 : i < 16 ? q[i] & 15 : q[i - 16] >> 4;
        put_unsigned(w, panel, n, first + i, value);
    }
    ((uint16_t *)w->scale)[scale_place(w, n, first / GROUP)] = scale;
    if (w->type == OCTAVO_INT4)
        ((uint16_t *)w->low)[scale_place(w, n, first / GROUP)] = low;
}

static void pack_row(const octavo_pack *a, int32_t n) {
    static const int BLOCK_BYTES[] = {[OCTAVO_FROM_Q4_0] = 18, [OCTAVO_FROM_Q4_1] = 20, [OCTAVO_FROM_Q8_0] = 34};
    const octavo_weight *w = a->weight;
    char *panel = (char *)panel_of(w, n / PANEL);
    const float *row = (const float *)a->rows + (int64_t)n * w->inputs;
    if (w->type == OCTAVO_FLOAT32 || w->type == OCTAVO_BFLOAT16)
        pack_floats(w, panel, n, row);
    else if (w->type == OCTAVO_INT8)
        pack_int8(w, panel, n, row);
    else
        for (int32_t first = 0; first < w->inputs; first += GROUP) {
            int64_t block = (int64_t)n * (w->inputs / GROUP) + first / GROUP;
            if (a->source == OCTAVO_FROM_FLOAT32)
                pack_group(w, panel, n, first, row);
            else
                pack_block(w, panel, n, first, (const uint8_t *)a->rows + block * BLOCK_BYTES[a->source], a->source);
        }
}

static void pack(const void *arguments, octavo_thread *thread) {
    const octavo_pack *a = arguments;
    int32_t outputs = a->weight->outputs;
    for (int64_t panel; (panel = octavo_next(thread)) * PANEL < outputs;)
        for (int32_t n = (int32_t)panel * PANEL; n < outputs && n < (panel + 1) * PANEL; n++)
            pack_row(a, n);
}

static float weight_at(const octavo_weight *w, const char *panel, int32_t n, int32_t k) {
    const char *at = panel + place_of(w, n, k);
    if (w->type == OCTAVO_FLOAT32)
        return *(const float *)at;
    if (w->type == OCTAVO_BFLOAT16)
        return from_bfloat16(*half_at(at));
    if (w->type == OCTAVO_INT8)
        return (float)*(const int8_t *)at * ((const float *)w->scale)[n];
    int64_t place = scale_place(w, n, k / GROUP);
    float scale = from_float16(half_at(w->scale)[place]);
    uint8_t byte = (uint8_t)*at;
    if (w->type == OCTAVO_INT8_GROUPS)
        return scale * (float)(byte - 128);
    return (float)(k % GROUP >= GROUP / 2 ? byte >> 4 : byte & 15) * scale + from_float16(half_at(w->low)[place]);
}

static void embed(const void *arguments, octavo_thread *thread) {
    const octavo_embed *a = arguments;
    for (int64_t i; (i = octavo_next(thread)) < *a->rows;) {
        int32_t n = a->index[i];
        const char *panel = panel_of(a->source, n / PANEL);
        char *out = row_of(&a->out, i);
        for (int32_t k = 0; k < a->source->inputs; k++)
            write_float(out, a->out.type, k, weight_at(a->source, panel, n, k));
    }
}

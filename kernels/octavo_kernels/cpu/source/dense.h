/* Operations on rows of activations. */

static void take_tokens(const void *arguments, octavo_thread *thread) {
    const octavo_take_tokens *a = arguments;
    const octavo_step *s = a->step;
    for (int64_t i = octavo_first(thread, *s->num_rows), end = octavo_end(thread, *s->num_rows); i < end; i++) {
        if (s->row_slot[i] < 0)
            continue;
        const int32_t *history = a->sampling->history + s->row_slot[i] * a->sampling->history_width;
        for (int32_t t = s->row_start[i]; t < s->row_start[i + 1]; t++)
            s->token[t] = history[s->position[t]];
    }
}

static void take_rows(const void *arguments, octavo_thread *thread) {
    const octavo_take_rows *a = arguments;
    for (int64_t i = octavo_first(thread, *a->rows), end = octavo_end(thread, *a->rows); i < end; i++) {
        const char *source = row_of(&a->source, a->index[i]);
        char *out = row_of(&a->out, i);
        int32_t j = 0;
        if (a->source.type == a->out.type) {
            memcpy(out, source, (size_t)(a->out.width * element_size(a->out.type)));
            continue;
        }
        for (; j + LANES <= a->out.width; j += LANES)
            write_floats(out, a->out.type, j, read_floats(source, a->source.type, j));
        for (; j < a->out.width; j++)
            write_float(out, a->out.type, j, read_float(source, a->source.type, j));
    }
}

/* residual += x; the sum of its squares, lane by lane and the lanes in order, whatever the other rows are. */
INLINE float add_and_square(int32_t width, char *residual, int type, const char *x, int x_type) {
    int32_t j = 0;
    floats squares = splat(0);
    float rest = 0;
    for (; j + LANES <= width; j += LANES) {
        floats v = read_floats(residual, type, j);
        if (x) {
            write_floats(residual, type, j, v + read_floats(x, x_type, j));
            v = read_floats(residual, type, j);
        }
        squares += v * v;
    }
    for (; j < width; j++) {
        if (x)
            write_float(residual, type, j, read_float(residual, type, j) + read_float(x, x_type, j));
        float v = read_float(residual, type, j);
        rest += v * v;
    }
    return sum_of(squares) + rest;
}

INLINE void rms_norm_of(const octavo_rms_norm *a, octavo_thread *thread, int type, int x_type, int out_type) {
    int32_t width = a->out.width;
    for (int64_t i = octavo_first(thread, *a->rows), end = octavo_end(thread, *a->rows); i < end; i++) {
        char *residual = row_of(&a->residual, i), *out = row_of(&a->out, i);
        float squares = add_and_square(width, residual, type, a->x.data ? row_of(&a->x, i) : NULL, x_type);
        float scale = 1.0f / sqrtf(squares / (float)width + a->eps);
        int32_t j = 0;
        for (; j + LANES <= width; j += LANES)
            write_floats(out, out_type, j, read_floats(residual, type, j) * scale * load(a->weight + j));
        for (; j < width; j++)
            write_float(out, out_type, j, read_float(residual, type, j) * scale * a->weight[j]);
    }
}

/* The usual types are known to the compiler. */
static void rms_norm(const void *arguments, octavo_thread *thread) {
    const octavo_rms_norm *a = arguments;
    if (a->residual.type == OCTAVO_FLOAT32 && a->x.type == OCTAVO_BFLOAT16 && a->out.type == OCTAVO_BFLOAT16)
        rms_norm_of(a, thread, OCTAVO_FLOAT32, OCTAVO_BFLOAT16, OCTAVO_BFLOAT16);
    else
        rms_norm_of(a, thread, a->residual.type, a->x.type, a->out.type);
}

INLINE floats silu(floats x) {
    return x / (1.0f + exponential(-x));
}

static void silu_mul(const void *arguments, octavo_thread *thread) {
    const octavo_silu_mul *a = arguments;
    int32_t width = a->out.width, type = a->gate_up.type;
    for (int64_t i = octavo_first(thread, *a->rows), end = octavo_end(thread, *a->rows); i < end; i++) {
        char *gate_up = row_of(&a->gate_up, i), *out = row_of(&a->out, i);
        int32_t j = 0;
        for (; j + LANES <= width; j += LANES) {
            floats gate = read_floats(gate_up, type, j), up = read_floats(gate_up, type, width + j);
            write_floats(out, a->out.type, j, silu(gate) * up);
        }
        for (; j < width; j++) {
            float gate = read_float(gate_up, type, j), up = read_float(gate_up, type, width + j);
            write_float(out, a->out.type, j, silu(splat(gate))[0] * up);
        }
    }
}

/* Operations on rows of activations. */

static void take_rows(const void *arguments, octavo_thread *thread) {
    const octavo_take_rows *a = arguments;
    for (int64_t i; (i = octavo_next(thread)) < *a->rows;) {
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
static float add_and_square(const octavo_rms_norm *a, char *residual, const char *x) {
    int32_t width = a->out.width, j = 0, type = a->residual.type;
    floats squares = splat(0);
    float rest = 0;
    for (; j + LANES <= width; j += LANES) {
        floats v = read_floats(residual, type, j);
        if (x) {
            write_floats(residual, type, j, v + read_floats(x, a->x.type, j));
            v = read_floats(residual, type, j);
        }
        squares += v * v;
    }
    for (; j < width; j++) {
        if (x)
            write_float(residual, type, j, read_float(residual, type, j) + read_float(x, a->x.type, j));
        float v = read_float(residual, type, j);
        rest += v * v;
    }
    return sum_of(squares) + rest;
}

static void rms_norm(const void *arguments, octavo_thread *thread) {
    const octavo_rms_norm *a = arguments;
    int32_t width = a->out.width;
    for (int64_t i; (i = octavo_next(thread)) < *a->rows;) {
        char *residual = row_of(&a->residual, i), *out = row_of(&a->out, i);
        float squares = add_and_square(a, residual, a->x.data ? row_of(&a->x, i) : NULL);
        float scale = 1.0f / sqrtf(squares / (float)width + a->eps);
        int32_t j = 0;
        for (; j + LANES <= width; j += LANES)
            write_floats(out, a->out.type, j, read_floats(residual, a->residual.type, j) * scale * load(a->weight + j));
        for (; j < width; j++)
            write_float(out, a->out.type, j, read_float(residual, a->residual.type, j) * scale * a->weight[j]);
    }
}

INLINE floats silu(floats x) {
    return x / (1.0f + exponential(-x));
}

static void silu_mul(const void *arguments, octavo_thread *thread) {
    const octavo_silu_mul *a = arguments;
    int32_t width = a->out.width, type = a->gate_up.type;
    for (int64_t i; (i = octavo_next(thread)) < *a->rows;) {
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

/* Bringing rows of x to what the products read: padded, converted or quantised, in the scratch of the operation. */

typedef struct {
    const int32_t *rows;
    const octavo_matrix *x;
    const octavo_weight *weight;
    void *scratch;
} stage_task;

typedef struct {
    int64_t stride; /* bytes of a staged row */
    int64_t groups;
    char *data;
    float *scale;
    float *sums;
} stage_room;

static stage_room room_of(const stage_task *a) {
    int32_t type = a->weight->type, padded = padded_inputs(a->weight);
    int64_t groups = is_grouped(type) ? padded / GROUP : 1, rows = *a->rows;
    int64_t stride = (int64_t)padded * (type == OCTAVO_FLOAT32 ? 4 : type == OCTAVO_BFLOAT16 ? 2 : 1);
    if (type != OCTAVO_FLOAT32 && stride / 64 % 2 == 0)
        stride += 64; /* rows of a tile in different sets of the first cache; there is room for four bytes an element */
    float *scale = (float *)((char *)a->scratch + rows * stride);
    return (stage_room){stride, groups, a->scratch, scale, scale + rows * groups};
}

/* Whether rows of x can be read where they lie. */
static int is_ready(const stage_task *a) {
    return a->weight->type == a->x->type && padded_inputs(a->weight) == a->weight->inputs;
}

static void convert_row(const stage_task *a, const char *x, char *out) {
    int32_t type = a->weight->type, inputs = a->weight->inputs, padded = padded_inputs(a->weight), k = 0;
    for (; k + LANES <= inputs; k += LANES)
        write_floats(out, type, k, read_floats(x, a->x->type, k));
    for (; k < padded; k++)
        write_float(out, type, k, k < inputs ? read_float(x, a->x->type, k) : 0);
}

/* NaN if there is one, or an infinity: integers could not say so. */
INLINE float largest_magnitude(const char *x, int32_t type, int32_t first, int32_t end) {
    floats top = splat(0), doubt = splat(0);
    float rest = 0;
    int32_t k = first;
    for (; k + LANES <= end; k += LANES) {
        floats v = read_floats(x, type, k);
        top = maximum(top, maximum(v, -v));
        doubt += v * 0.0f;
    }
    for (; k < end; k++) {
        rest = fmaxf(rest, fabsf(read_float(x, type, k)));
        doubt[0] += read_float(x, type, k) * 0.0f;
    }
    return fmaxf(rest, largest_of(top)) + sum_of(doubt);
}

/* out[k] = round(x[k] / scale) + offset for k in [first, end); 0 + offset up to `padded`. Returns the sum of the rounded. */
INLINE int32_t quantise(const char *x, int32_t type, int32_t first, int32_t end, int32_t padded, float scale, int offset,
                        uint8_t *out) {
    float inverse = scale > 0 ? 1 / scale : 0;
    ints total = {0};
    int32_t rest = 0, k = first;
    for (; k + LANES <= end; k += LANES) {
        ints q = nearest(read_floats(x, type, k) * inverse);
        total += q;
        store_bytes(out + k, q + offset);
    }
    for (; k < padded; k++) {
        int32_t q = k < end ? (int32_t)rintf(read_float(x, type, k) * inverse) : 0;
        rest += q;
        out[k] = (uint8_t)(q + offset);
    }
    for (int i = 0; i < LANES; i++)
        rest += total[i];
    return rest;
}

INLINE void quantise_row(const stage_task *a, const stage_room *room, const char *x, int type, int64_t row) {
    int32_t inputs = a->weight->inputs, padded = padded_inputs(a->weight);
    uint8_t *out = (uint8_t *)room->data + row * room->stride;
    if (a->weight->type == OCTAVO_INT8) {
        float scale = largest_magnitude(x, type, 0, inputs) / 127;
        room->scale[row] = scale;
        quantise(x, type, 0, inputs, padded, scale, 128, out);
        return;
    }
    for (int64_t g = 0; g < room->groups; g++) {
        int32_t first = (int32_t)g * GROUP, end = first + GROUP < inputs ? first + GROUP : inputs;
        float scale = largest_magnitude(x, type, first, end) / 127;
        int32_t sum = quantise(x, type, first, end, first + GROUP, scale, 0, out);
        room->scale[row * room->groups + g] = scale;
        room->sums[row * room->groups + g] = scale * (float)sum;
    }
}

static staged stage(const stage_task *a, octavo_thread *thread) {
    if (is_ready(a))
        return (staged){.data = a->x->data, .stride = a->x->stride};
    stage_room room = room_of(a);
    for (int64_t row = octavo_first(thread, *a->rows); row < octavo_end(thread, *a->rows); row++) {
        const char *x = row_of(a->x, row);
        if (a->weight->type == OCTAVO_FLOAT32 || a->weight->type == OCTAVO_BFLOAT16)
            convert_row(a, x, room.data + row * room.stride);
        else if (a->x->type == OCTAVO_BFLOAT16)
            quantise_row(a, &room, x, OCTAVO_BFLOAT16, row);
        else
            quantise_row(a, &room, x, OCTAVO_FLOAT32, row);
    }
    octavo_barrier(thread);
    return (staged){room.data, room.stride, room.scale, room.sums};
}

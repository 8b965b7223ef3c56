/* What a thread works in, and the sums that it keeps for the rows of a task. */

typedef struct {
    int32_t width; /* of a head, whole sheets */
    float scale;   /* of scores, which become powers of two */
    float cap;     /* of scores before that; 0: none */
    char *queries;      /* [TASK_ROWS] rows, see query_bytes */
    float *query_scale; /* [TASK_ROWS] of split rows */
    int32_t *seen; /* [TASK_ROWS] positions that each row sees */
    float *scores; /* of a band */
    char *weights;
    float *weight_scale; /* [BAND] of weights in bytes */
    int32_t *sums;       /* of products of bytes */
    float *key_scale; /* [KV_BLOCK] of int8 */
    float *value_scale;
    block_room block;
    float *parts; /* sums of the bands of a task, as often as fits to the end of the scratch */
} attention_room;

/* Bytes of a row of queries: elements of the products, split where these are bytes. */
INLINE int64_t query_bytes(int32_t width, int size) {
    return (int64_t)(size == 1 ? 2 * split_width(width) : width * size);
}

/* Floats of the sums of a band. */
INLINE int64_t sums_size(int32_t width) {
    return BAND * (1 + LANES + width);
}

INLINE band_sums sums_of(float *sums, int32_t width, int32_t band) {
    float *at = sums + band * sums_size(width);
    return (band_sums){at, at + BAND, at + BAND * (1 + LANES)};
}

static attention_room room_in(char *scratch, int32_t head_dim, float softcap) {
    int64_t width = padded_width(head_dim), block = KV_BLOCK * width * 4;
    float root = sqrtf((float)head_dim);
    attention_room r = {.width = (int32_t)width, .scale = LOG2_E / root, .cap = softcap * root};
    char *at = scratch;
    r.queries = at, at += TASK_ROWS * (width + 48) * 4;
    r.query_scale = (float *)at, at += TASK_ROWS * 4;
    r.block = (block_room){at, at + block, at + 2 * block}, at += 2 * block + 2 * width * 4;
    r.seen = (int32_t *)at, at += TASK_ROWS * 4;
    r.scores = (float *)at, at += BAND * KV_BLOCK * 4;
    r.weights = at, at += BAND * KV_BLOCK * 4;
    r.weight_scale = (float *)at, at += BAND * 4;
    r.sums = (int32_t *)at, at += 2 * BAND * (width > KV_BLOCK ? width : KV_BLOCK) * 4;
    r.key_scale = (float *)at, at += KV_BLOCK * 4;
    r.value_scale = (float *)at, at += KV_BLOCK * 4;
    r.parts = (float *)at;
    return r;
}

static void clear_sums(float *sums, int32_t width, int32_t bands) {
    memset(sums, 0, (size_t)(bands * sums_size(width)) * sizeof(float));
    for (int32_t b = 0; b < bands; b++)
        for (int32_t r = 0; r < BAND; r++)
            sums_of(sums, width, b).top[r] = LOWEST;
}

/* whole = whole and part, brought to the higher of their tops. */
static void join(float *whole, float *part, int32_t width, int32_t bands) {
    float keep[BAND], take[BAND];
    for (int32_t b = 0; b < bands; b++) {
        band_sums to = sums_of(whole, width, b), from = sums_of(part, width, b);
        for (int32_t r = 0; r < BAND; r += LANES) {
            floats old = load(to.top + r), other = load(from.top + r), top = maximum(old, other);
            store(keep + r, power_of_two(old - top, 0));
            store(take + r, power_of_two(other - top, 0));
            store(to.top + r, top);
        }
        for (int32_t r = 0; r < BAND; r++) {
            store(to.total + r * LANES, load(to.total + r * LANES) * keep[r] + load(from.total + r * LANES) * take[r]);
            for (int32_t i = r * width; i < (r + 1) * width; i += LANES)
                store(to.mixed + i, load(to.mixed + i) * keep[r] + load(from.mixed + i) * take[r]);
        }
    }
}

/* Returns the scale of a split row, 1 of others. */
static float convert_query(const char *from, int32_t type, int32_t dim, const attention_room *room, int size, char *out) {
    float *row = (float *)room->block.row;
    memset(row, 0, (size_t)room->width * 4);
    to_floats(from, type, dim, row);
#if defined(__AMX_TILE__)
    if (size == 1)
        return split_row(row, room->width, out);
#endif
    for (int32_t i = 0; i < room->width; i += LANES)
        write_floats(out, size == 2 ? OCTAVO_BFLOAT16 : OCTAVO_FLOAT32, i, load(row + i));
    return 1;
}

/* Queries of a task as the products read them, and how far each sees. */
static void read_queries(const octavo_attention *a, const attention_task *t, int size, const attention_room *room) {
    int32_t dim = a->geometry->head_dim, type = a->qkv.type, head = t->first % t->group;
    int64_t token = t->first / t->group, head_bytes = dim * element_size(type);
    char *out = room->queries;
    for (int32_t r = 0; r < t->rows; r++, out += query_bytes(room->width, size)) {
        const char *from = row_of(&a->qkv, t->token + token) + (t->query_head + head) * head_bytes;
        room->seen[r] = (int32_t)(t->position + token) + 1;
        if (element_size(type) == size && room->width == dim)
            memcpy(out, from, (size_t)head_bytes);
        else
            room->query_scale[r] = convert_query(from, type, dim, room, size, out);
        if (++head == t->group) {
            head = 0;
            token++;
        }
    }
}

static void write_result(const float *mixed, float factor, int32_t dim, int32_t type, char *out) {
    int32_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        write_floats(out, type, i, load(mixed + i) * factor);
    for (; i < dim; i++)
        write_float(out, type, i, mixed[i] * factor);
}

static void write_results(const octavo_attention *a, const attention_task *t, float *sums, int32_t width) {
    int32_t dim = a->geometry->head_dim, type = a->out.type, head = t->first % t->group;
    int64_t token = t->first / t->group, head_bytes = dim * element_size(type);
    for (int32_t r = 0; r < t->rows; r++) {
        band_sums from = sums_of(sums, width, r / BAND);
        char *out = row_of(&a->out, t->token + token) + (t->query_head + head) * head_bytes;
        write_result(from.mixed + r % BAND * width, 1 / sum_of(load(from.total + r % BAND * LANES)), dim, type, out);
        if (++head == t->group) {
            head = 0;
            token++;
        }
    }
}

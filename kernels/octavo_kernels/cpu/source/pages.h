/* Writing K and V into pages, and moving pages. */

#include "elements.h"

/* Turns each pair (i, i + width / 2) by its angle; `out` may be x. */
INLINE void rotate_as(int type, int out_type, const char *x, int32_t width, const float *cos, const float *sin, char *out) {
    int32_t half = width / 2, i = 0;
    for (; i + LANES <= half; i += LANES) {
        floats low = read_floats(x, type, i), high = read_floats(x, type, half + i), c = load(cos + i), s = load(sin + i);
        write_floats(out, out_type, i, low * c - high * s);
        write_floats(out, out_type, half + i, high * c + low * s);
    }
    for (; i < half; i++) {
        float low = read_float(x, type, i), high = read_float(x, type, half + i);
        write_float(out, out_type, i, low * cos[i] - high * sin[i]);
        write_float(out, out_type, half + i, high * cos[i] + low * sin[i]);
    }
}

static void rotate(const char *x, int32_t type, int32_t width, const float *cos, const float *sin, char *out) {
    if (type == OCTAVO_BFLOAT16)
        rotate_as(OCTAVO_BFLOAT16, OCTAVO_BFLOAT16, x, width, cos, sin, out);
    else
        rotate_as(OCTAVO_FLOAT32, OCTAVO_FLOAT32, x, width, cos, sin, out);
}

static void rotate_to_floats(const char *x, int32_t type, int32_t width, const float *cos, const float *sin, float *out) {
    if (type == OCTAVO_BFLOAT16)
        rotate_as(OCTAVO_BFLOAT16, OCTAVO_FLOAT32, x, width, cos, sin, (char *)out);
    else
        rotate_as(OCTAVO_FLOAT32, OCTAVO_FLOAT32, x, width, cos, sin, (char *)out);
}

/* Where one token of one head goes: into a block, at a place in its page. */
typedef struct {
    const octavo_geometry *geometry;
    char *block;
    int64_t token;
} place;

/* K or V as the cache has them. `row` is float32; both have room for LANES more. */
static void encode(place at, int is_value, const float *row, char *encoded) {
    const octavo_geometry *g = at.geometry;
    floats inverse = splat(1);
    if (g->type == OCTAVO_INT8) {
        uint16_t scale = scale_of(row, g->head_dim);
        char *scales = at.block + 2 * (int64_t)g->page_size * g->head_dim;
        memcpy(scales + (is_value * g->page_size + at.token) * (int64_t)sizeof scale, &scale, sizeof scale);
        inverse = splat(scale ? 1 / from_bfloat16(scale) : 0);
    }
    for (int32_t i = 0; i < g->head_dim; i += LANES)
        store_elements(encoded, g->type, i, load(row + i) * inverse);
}

static void put(place at, int is_value, const float *row, char *encoded) {
    const octavo_geometry *g = at.geometry;
    int64_t row_bytes = g->head_dim * element_size(g->type);
    char *half = at.block + is_value * g->page_size * row_bytes;
    encode(at, is_value, row, encoded);
    if (!is_panelled(g))
        memcpy(half + at.token * row_bytes, encoded, (size_t)row_bytes);
    else if (is_value)
        place_value(half, at.token, encoded, g->head_dim, element_size(g->type));
    else
        place_key(half + at.token / SHEET * SHEET * row_bytes, at.token % SHEET, encoded, row_bytes);
}

/* K and V of all heads of a token; `kv` is where its keys begin. */
static void write_token(const octavo_rope_and_write *a, int64_t kv_index, const float *cos, const float *sin, const char *kv,
                        char *scratch) {
    const octavo_geometry *g = a->geometry;
    int64_t page = kv_index / g->page_size, head_bytes = g->head_dim * element_size(a->qkv.type);
    char *block = (char *)a->pool + (page * g->num_layers + a->layer) * g->num_kv_heads * g->block_bytes;
    char *encoded = scratch + (g->head_dim + LANES) * 4;
    for (int32_t h = 0; h < g->num_kv_heads; h++, kv += head_bytes, block += g->block_bytes) {
        place at = {g, block, kv_index - page * g->page_size};
        rotate_to_floats(kv, a->qkv.type, g->head_dim, cos, sin, (float *)scratch);
        put(at, 0, (float *)scratch, encoded);
        to_floats(kv + g->num_kv_heads * head_bytes, a->qkv.type, g->head_dim, (float *)scratch);
        put(at, 1, (float *)scratch, encoded);
    }
}

static void rope_and_write_token(const octavo_rope_and_write *a, int64_t token, char *scratch) {
    int32_t width = a->geometry->head_dim, type = a->qkv.type;
    int64_t position = a->step->position[token], kv_index = a->step->kv_index[token], angle = position > 0 ? position : 0;
    const float *cos = a->cos + angle * (width / 2), *sin = a->sin + angle * (width / 2);
    char *row = row_of(&a->qkv, token);
    for (int32_t h = 0; h < a->heads; h++, row += width * element_size(type))
        rotate(row, type, width, cos, sin, row);
    if (kv_index >= 0)
        write_token(a, kv_index, cos, sin, row, scratch);
}

static void rope_and_write(const void *arguments, octavo_thread *thread) {
    const octavo_rope_and_write *a = arguments;
    int64_t tokens = *a->step->num_tokens, share = tokens / (4 * octavo_team_size(thread));
    int64_t most = share < 1 ? 1 : share < SHEET ? share : SHEET; /* neighbours of a page are written by one thread */
    for (int64_t first; (first = octavo_next(thread) * most) < tokens;)
        for (int64_t token = first; token < first + most && token < tokens; token++)
            rope_and_write_token(a, token, thread->scratch);
}

/* A page's bytes are shared among threads in slices. */
enum { SLICE = 64 << 10 };

typedef struct {
    int64_t page;
    int64_t offset;
    size_t size;
} slice;

static int next_slice(octavo_thread *thread, int64_t pages, int64_t page_bytes, slice *found) {
    int64_t each = (page_bytes + SLICE - 1) / SLICE, i = octavo_next(thread);
    if (i >= pages * each)
        return 0;
    int64_t offset = i % each * SLICE;
    *found = (slice){i / each, offset, (size_t)(page_bytes - offset < SLICE ? page_bytes - offset : SLICE)};
    return 1;
}

INLINE char *slice_at(const void *pages, int64_t page, int64_t page_bytes, const slice *s) {
    return (char *)pages + page * page_bytes + s->offset;
}

static void move_pages(const void *arguments, octavo_thread *thread) {
    const octavo_move_pages *a = arguments;
    int64_t n = a->page_bytes;
    slice s;
    if (!a->staging) {
        while (next_slice(thread, a->count, n, &s))
            memcpy(slice_at(a->target, a->target_ids[s.page], n, &s), slice_at(a->source, a->source_ids[s.page], n, &s), s.size);
        return;
    }
    while (next_slice(thread, a->count, n, &s))
        memcpy(slice_at(a->staging, s.page, n, &s), slice_at(a->source, a->source_ids[s.page], n, &s), s.size);
    octavo_barrier(thread);
    while (next_slice(thread, a->count, n, &s))
        memcpy(slice_at(a->target, a->target_ids[s.page], n, &s), slice_at(a->staging, s.page, n, &s), s.size);
}

static void zero_pages(const void *arguments, octavo_thread *thread) {
    const octavo_zero_pages *a = arguments;
    slice s;
    while (next_slice(thread, a->count, a->page_bytes, &s))
        memset(slice_at(a->pool, a->ids[s.page], a->page_bytes, &s), 0, s.size);
}

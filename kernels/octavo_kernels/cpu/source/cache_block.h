/* Reading a block of positions of one head into what the products of attention read: sheets of 16 tokens whose elements
 * are float32 (g = 1), bfloat16 (g = 2) or int8 (g = 4). Where the pages hold just that, they are read in place. */

enum { KV_BLOCK = 64, SHEETS = KV_BLOCK / SHEET, SCALE_BYTES = 2, SPLIT_STEP = 64 };

/* K and V of one head of one sequence. */
typedef struct {
    const octavo_geometry *geometry;
    const char *pool; /* the head's block of page 0 */
    int64_t page_bytes;
    const int32_t *table;
    int64_t length;
} kv_head;

/* Where the sheets of a block lie in the pages; null past the end. */
typedef struct {
    const char *keys[SHEETS];
    const char *values[SHEETS];
    const char *scales[SHEETS]; /* of K; those of V are page_size further on */
} places;

static const places NOWHERE = {{0}, {0}, {0}};

typedef struct {
    const char *keys[SHEETS];   /* each [width / g][token][g] */
    const char *values[SHEETS]; /* each [token / g][width][g]; tokens past the length are zero */
    const char *next_keys[SHEETS]; /* to be prefetched while the others are read: those of the next block, if in the same form */
    const char *next_values[SHEETS];
    float *key_scale; /* [KV_BLOCK] of int8 */
    float *value_scale;
    int32_t sheets; /* that hold tokens */
    int32_t is_read_once;
} cache_block;

/* Room for a block in another form than in the pages. */
typedef struct {
    char *keys;
    char *values;
    char *row;
} block_room;

/* Bytes of an element that the products read. Integers up to 256 are exact in bfloat16, float16 is not. */
INLINE int product_size(int32_t type) {
#if defined(__AMX_TILE__)
    return type == OCTAVO_BFLOAT16 ? 2 : type == OCTAVO_INT8 ? 1 : 4;
#elif defined(__AVX512BF16__)
    return type == OCTAVO_BFLOAT16 || type == OCTAVO_INT8 ? 2 : 4;
#else
    (void)type;
    return 4;
#endif
}

INLINE int32_t padded_width(int32_t head_dim) {
    return (head_dim + SHEET - 1) / SHEET * SHEET;
}

/* Bytes of each half of a row that is split into high and low bytes: whole tiles. */
INLINE int32_t split_width(int32_t width) {
    return (width + SPLIT_STEP - 1) / SPLIT_STEP * SPLIT_STEP;
}

INLINE int32_t tokens_of_block(const kv_head *h, int64_t start) {
    return h->length - start < KV_BLOCK ? (int32_t)(h->length - start) : KV_BLOCK;
}

static places find_places(const kv_head *h, int64_t start) {
    const octavo_geometry *g = h->geometry;
    int64_t token_bytes = g->head_dim * element_size(g->type), half = g->page_size * token_bytes;
    places p = NOWHERE;
    int32_t page_size = g->page_size, page = (int32_t)start / page_size, token = (int32_t)start % page_size;
    for (int32_t i = 0; is_panelled(g) && i * SHEET < tokens_of_block(h, start); i++, token += SHEET) {
        if (token == page_size) {
            token = 0;
            page++;
        }
        const char *block = h->pool + h->table[page] * h->page_bytes;
        p.keys[i] = block + token * token_bytes;
        p.values[i] = p.keys[i] + half;
        p.scales[i] = block + 2 * half + token * SCALE_BYTES;
    }
    return p;
}

INLINE void prefetch(const char *from, int64_t size) {
    for (int64_t i = 0; from && i < size; i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

/* The k'th element of each word, as floats. */
INLINE floats element_of(ints w, int k, int32_t type) {
    if (type == OCTAVO_BFLOAT16)
        return (floats)(k ? w & ~0xffff : w << 16);
    if (type == OCTAVO_INT8)
        return __builtin_convertvector(w << (24 - 8 * k) >> 24, floats);
    halves h = __builtin_convertvector((words)w >> (16 * k) & 0xffff, halves);
    return load_float16((const uint16_t *)&h);
}

/* Rows of `count` words of g elements each: g rows of floats each, of their first elements, of their second ones, ... */
INLINE void widen_to_floats(const char *from, int64_t rows, int64_t count, int32_t type, int g, float *to) {
    for (int64_t r = 0; r < rows; r++, to += g * count)
        for (int64_t i = 0; i < count; i += LANES) {
            ints w = load_ints(from + 4 * (r * count + i));
            for (int k = 0; k < g; k++)
                store(to + k * count + i, element_of(w, k, type));
        }
}

/* Rows of words of four int8: two rows of words of two bfloat16 each. */
static void widen_to_bfloat16(const char *from, int64_t rows, int64_t count, char *to) {
    for (int64_t r = 0; r < rows; r++, to += 8 * count)
        for (int64_t i = 0; i < count; i += LANES) {
            ints w = load_ints(from + 4 * (r * count + i)), pairs[2];
            for (int k = 0; k < 2; k++)
                pairs[k] = ((ints)element_of(w, 2 * k, OCTAVO_INT8) >> 16 & 0xffff) | (ints)element_of(w, 2 * k + 1, OCTAVO_INT8);
            memcpy(to + 4 * i, &pairs[0], sizeof pairs[0]);
            memcpy(to + 4 * (count + i), &pairs[1], sizeof pairs[1]);
        }
}

/* Rows of words, as they lie in the pages, in elements of the products; `from` if they are that already. */
INLINE const char *widened(const char *from, int32_t type, int64_t rows, int64_t count, int size, char *room) {
    if (element_size(type) == size)
        return from;
    if (size == 2)
        widen_to_bfloat16(from, rows, count, room);
    else if (type == OCTAVO_INT8)
        widen_to_floats(from, rows, count, OCTAVO_INT8, 4, (float *)room);
    else if (type == OCTAVO_FLOAT16)
        widen_to_floats(from, rows, count, OCTAVO_FLOAT16, 2, (float *)room);
    else
        widen_to_floats(from, rows, count, OCTAVO_BFLOAT16, 2, (float *)room);
    return room;
}

/* Zeroes what a sheet of V holds from a token on: there may be NaN, which a weight of 0 does not silence. */
static void silence(char *values, int32_t token, int32_t width, int g) {
    if (g == 2 && token % 2) {
        uint32_t *row = (uint32_t *)values + token / 2 * width;
        for (int32_t i = 0; i < width; i++)
            row[i] &= 0xffff;
    }
    int32_t row = (token + g - 1) / g;
    memset(values + row * width * 4, 0, (size_t)((SHEET / g - row) * width * 4));
}

/* Zeroes what a block of V holds before a token that is the first that anybody sees, and its scales: they may be NaN as well. */
static void silence_past(cache_block *b, int32_t first, int32_t width, int size, const block_room *room) {
    int64_t bytes = SHEET * width * size;
    memset(b->value_scale, 0, (size_t)first * sizeof(float));
    for (int32_t i = 0; size > 1 && i * SHEET < first; i++) {
        int32_t count = first - i * SHEET < SHEET ? first - i * SHEET : SHEET, whole = count * size / 4;
        uint32_t *row = (uint32_t *)(room->values + i * bytes) + whole * width;
        if (b->values[i] != room->values + i * bytes)
            b->values[i] = memcpy(room->values + i * bytes, b->values[i], (size_t)bytes);
        memset(room->values + i * bytes, 0, (size_t)(whole * width * 4));
        for (int32_t k = 0; count * size % 4 && k < width; k++)
            row[k] &= 0xffff0000;
    }
}

/* Scales of `count` tokens from one on: of K at `from`, of V page_size scales further on. */
static void read_scales(const char *from, int32_t count, int32_t page_size, float *key_scale, float *value_scale) {
    for (int32_t i = 0; i < count && i < SHEET; i++) {
        uint16_t scale[2];
        memcpy(&scale[0], from + i * SCALE_BYTES, SCALE_BYTES);
        memcpy(&scale[1], from + (i + page_size) * SCALE_BYTES, SCALE_BYTES);
        key_scale[i] = from_bfloat16(scale[0]);
        value_scale[i] = from_bfloat16(scale[1]);
    }
}

/* Tiles take the values of 32 or 64 tokens at once, which may lie in several pages. */
INLINE int copies_values(int size) {
#if defined(__AMX_TILE__)
    return size < 4;
#else
    (void)size;
    return 0;
#endif
}

/* One sheet of pages in panels, with `count` tokens. */
INLINE void read_sheet(const octavo_geometry *g, const places *at, const places *next, int32_t i, int32_t count, int size,
                       const block_room *room, cache_block *b) {
    int32_t width = g->head_dim, type = g->type, group = (int32_t)(4 / element_size(type));
    int64_t bytes = SHEET * width * size, bytes_in_pages = SHEET * width * element_size(type);
    char *keys = room->keys + i * bytes, *values = room->values + i * bytes;
    b->keys[i] = widened(at->keys[i], type, width / group, SHEET, size, keys);
    b->values[i] = widened(at->values[i], type, SHEET / group, width, size, values);
    if (b->values[i] != values && (count < SHEET || copies_values(size)))
        b->values[i] = memcpy(values, b->values[i], (size_t)bytes);
    if (count < SHEET && size > 1)
        silence(values, count, width, 4 / size);
    if (type == OCTAVO_INT8)
        read_scales(at->scales[i], count, g->page_size, b->key_scale + i * SHEET, b->value_scale + i * SHEET);
    b->next_keys[i] = b->keys[i] != keys && next->keys[i] ? next->keys[i] : b->keys[i];
    b->next_values[i] = b->values[i] != values && next->keys[i] ? next->values[i] : b->values[i];
    if (b->keys[i] == keys)
        prefetch(next->keys[i], bytes_in_pages);
    if (b->values[i] == values)
        prefetch(next->values[i], bytes_in_pages);
}

/* A row of elements of pages at `token` of a half of the block. */
INLINE void gather_row(const octavo_geometry *g, const char *from, int size, int is_value, int64_t token, const block_room *room) {
    int32_t width = padded_width(g->head_dim);
    int32_t work = size == 1 ? OCTAVO_INT8 : size == 2 ? OCTAVO_BFLOAT16 : OCTAVO_FLOAT32;
    int64_t filled = g->head_dim * element_size(g->type);
    char *row = room->row, *encoded = row + width * 4;
    memcpy(row, from, (size_t)filled);
    memset(row + filled, 0, (size_t)(width * 4 - filled));
    for (int32_t i = 0; i < width; i += LANES)
        store_elements(encoded, work, i, load_elements(row, g->type, i));
    if (is_value)
        place_value(room->values, token, encoded, width, size);
    else
        place_key(room->keys + token / SHEET * SHEET * width * size, token % SHEET, encoded, width * size);
}

/* A block of pages that are not in panels, token by token. */
INLINE void gather(const kv_head *h, int64_t start, int32_t count, int size, const block_room *room, cache_block *b) {
    const octavo_geometry *g = h->geometry;
    int64_t row_bytes = g->head_dim * element_size(g->type), half = g->page_size * row_bytes;
    int64_t sheet_bytes = SHEET * padded_width(g->head_dim) * size;
    for (int32_t i = 0; i < count; i++) {
        const char *block = h->pool + h->table[(start + i) / g->page_size] * h->page_bytes;
        int64_t token = (start + i) % g->page_size;
        gather_row(g, block + token * row_bytes, size, 0, i, room);
        gather_row(g, block + half + token * row_bytes, size, 1, i, room);
        if (g->type == OCTAVO_INT8)
            read_scales(block + 2 * half + token * SCALE_BYTES, 1, g->page_size, b->key_scale + i, b->value_scale + i);
    }
    for (int32_t i = 0; i < b->sheets; i++) {
        b->keys[i] = b->next_keys[i] = room->keys + i * sheet_bytes;
        b->values[i] = b->next_values[i] = room->values + i * sheet_bytes;
    }
    if (count % SHEET && size > 1)
        silence(room->values + count / SHEET * sheet_bytes, count % SHEET, padded_width(g->head_dim), 4 / size);
}

/* The block that begins at position `start`. size: of the products' elements. */
INLINE void read_block(const kv_head *h, int64_t start, const places *at, const places *next, int size, const block_room *room,
                       cache_block *b) {
    int32_t count = tokens_of_block(h, start), width = padded_width(h->geometry->head_dim);
    b->sheets = (count + SHEET - 1) / SHEET;
    memset(b->value_scale, 0, KV_BLOCK * sizeof(float));
    if (!is_panelled(h->geometry))
        gather(h, start, count, size, room, b);
    else
        for (int32_t i = 0; i < b->sheets; i++)
            read_sheet(h->geometry, at, next, i, count - i * SHEET, size, room, b);
    for (int32_t i = b->sheets; i < SHEETS; i++) {
        prefetch(next->keys[i], SHEET * width * element_size(h->geometry->type));
        prefetch(next->values[i], SHEET * width * element_size(h->geometry->type));
    }
    if (copies_values(size) && size == 2 && b->sheets % 2)
        memset(room->values + b->sheets * SHEET * width * size, 0, (size_t)(SHEET * width * size));
}

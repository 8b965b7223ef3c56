/* Products of attention by AMX: 16 rows by up to four tiles of 16 columns, 64 bytes of k at a time. */

/* Tiles 0-3: sums; 4: rows; 5: K or V; 6, 7: the same for the last 32 bytes of k. */
static void shape_tiles_for_bfloat16(void) {
    static const tile_shapes SHAPES = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 32, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 8}};
    _tile_loadconfig(&SHAPES);
}

/* X for each of `count` tiles, a number that the compiler knows. */
#define EACH_SUM(X)                                                                                                              \
    do {                                                                                                                         \
        X(0);                                                                                                                    \
        if (count > 1)                                                                                                           \
            X(1);                                                                                                                \
        if (count > 2)                                                                                                           \
            X(2);                                                                                                                \
        if (count > 3)                                                                                                           \
            X(3);                                                                                                                \
    } while (0)

/* Scores for `count` sheets of K. If `ahead`, the same bytes of the sheets at `next` are prefetched. */
INLINE void score_sheets(int count, int ahead, const char *const *keys, const char *const *next, int64_t row_bytes, product_rows p) {
#define ADD(i)                                                                                                                   \
    do {                                                                                                                         \
        _tile_loadd(5, keys[i] + k * SHEET, 64);                                                                                 \
        _tile_dpbf16ps(i, 4, 5);                                                                                                 \
        if (ahead)                                                                                                               \
            prefetch(next[i] + k * SHEET, 1024);                                                                                 \
    } while (0)
#define ADD_REST(i)                                                                                                              \
    do {                                                                                                                         \
        _tile_loadd(7, keys[i] + k * SHEET, 64);                                                                                 \
        _tile_dpbf16ps(i, 6, 7);                                                                                                 \
    } while (0)
#define PUT(i) _tile_stored(i, p.out + i * SHEET, p.out_stride * 4)
    int64_t k = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; k + 64 <= row_bytes; k += 64) {
        _tile_loadd(4, p.rows + k, p.stride);
        EACH_SUM(ADD);
    }
    if (k < row_bytes) {
        _tile_loadd(6, p.rows + k, p.stride);
        EACH_SUM(ADD_REST);
    }
    EACH_SUM(PUT);
#undef ADD
#undef ADD_REST
#undef PUT
}

/* Adds weighted values to `count` tiles of columns. */
INLINE void mix_columns(int count, const char *values, int32_t sheets, int64_t width, product_rows p) {
#define GET(i) _tile_loadd(i, p.out + i * 16, p.out_stride * 4)
#define ADD(i)                                                                                                                   \
    do {                                                                                                                         \
        _tile_loadd(5, values + i * 64, width * 4);                                                                              \
        _tile_dpbf16ps(i, 4, 5);                                                                                                 \
    } while (0)
#define PUT(i) _tile_stored(i, p.out + i * 16, p.out_stride * 4)
    EACH_SUM(GET);
    for (int32_t s = 0; s < sheets; s += 2, values += 16 * 4 * width) {
        _tile_loadd(4, p.rows + s * 32, p.stride);
        EACH_SUM(ADD);
    }
    EACH_SUM(PUT);
#undef GET
#undef ADD
#undef PUT
}

#define CASES_OF_COUNT CASE(1) CASE(2) CASE(3) CASE(4)

static void score_bfloat16(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    (void)rows; /* tiles have 16 */
    settle();
    for (int32_t s = 0; s < sheets; s += 4, p.out += 4 * SHEET)
        switch (sheets - s < 4 ? sheets - s : 4) {
#define CASE(n)                                                                                                                  \
    case n:                                                                                                                      \
        if (b->is_read_once)                                                                                                         \
            score_sheets(n, 1, b->keys + s, b->next_keys + s, width * 2, p);                                                     \
        else                                                                                                                     \
            score_sheets(n, 0, b->keys + s, b->next_keys + s, width * 2, p);                                                     \
        break;
            CASES_OF_COUNT
#undef CASE
        }
}

static void mix_bfloat16(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    const char *values = b->values[0];
    (void)rows; /* tiles have 16 */
    settle();
    for (int32_t column = 0; column < width; column += 64, values += 4 * 64, p.out += 64)
        switch (width - column < 64 ? (width - column) / 16 : 4) {
#define CASE(n)                                                                                                                  \
    case n:                                                                                                                      \
        mix_columns(n, values, sheets, width, p);                                                                                \
        break;
            CASES_OF_COUNT
#undef CASE
        }
}

/* Products of attention by AMX where the cache holds int8: K and V are multiplied as they lie. Rows of queries and of weights
 * are split into two bytes an element, so that they keep 15 bits of their largest element. */

enum { SPLIT_STEP = 64, SPLIT_MOST = 127 * 128 };

INLINE int32_t split_width(int32_t width) {
    return (width + SPLIT_STEP - 1) / SPLIT_STEP * SPLIT_STEP;
}

/* row = scale * (128 high + low): [split_width] high bytes and as many low ones, zero past `width`, a multiple of LANES.
 * Returns the scale. */
static float split_row(const float *row, int32_t width, char *high) {
    char *low = high + split_width(width);
    float most = largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, width), inverse = most > 1e-30f ? SPLIT_MOST / most : 0;
    for (int32_t i = 0; i < width; i += LANES) {
        ints whole = (ints)(load(row + i) * inverse + splat(12582912.0f)) - 0x4b400000; /* rounds to nearest, ties to even */
        ints upper = (whole + 64) >> 7;
        store_bytes(high + i, upper);
        store_bytes(low + i, whole - (upper << 7));
    }
    memset(high + width, 0, (size_t)(split_width(width) - width));
    memset(low + width, 0, (size_t)(split_width(width) - width));
    return most / SPLIT_MOST;
}

/* Tiles 0, 1: sums of high and of low bytes; 4, 5: these; 6: K or V; 2, 3 and 7: the same for the last bytes of k. */
static void shape_tiles_for_bytes(int32_t width) {
    tile_shapes shapes = {.palette = 1};
    int32_t rest = width % SPLIT_STEP ? width % SPLIT_STEP : SPLIT_STEP;
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = i == 2 || i == 3 ? (uint16_t)rest : 64;
        shapes.rows[i] = i == 7 ? (uint8_t)(rest / 4) : 16;
    }
    settle();
    _tile_loadconfig(&shapes);
}

/* Where tiles of sums are stored: [BAND][columns] of high bytes, then of low ones. */
typedef struct {
    int32_t *sums;
    int64_t columns;
} split_sums;

INLINE void store_sums(split_sums to, int64_t column) {
    _tile_stored(0, to.sums + column, to.columns * 4);
    _tile_stored(1, to.sums + BAND * to.columns + column, to.columns * 4);
}

INLINE floats sum_at(split_sums from, int32_t row, int64_t column) {
    const int32_t *high = from.sums + row * from.columns + column;
    return __builtin_convertvector(128 * load_ints(high) + load_ints(high + BAND * from.columns), floats);
}

INLINE void score_sheet(const char *keys, const char *next, int32_t width, int ahead, product_rows p) {
    const char *low = p.rows + split_width(width);
    int32_t k = 0;
    _tile_zero(0);
    _tile_zero(1);
    for (; k + SPLIT_STEP <= width; k += SPLIT_STEP) {
        _tile_loadd(4, p.rows + k, p.stride);
        _tile_loadd(5, low + k, p.stride);
        _tile_loadd(6, keys + k * SHEET, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        if (ahead)
            prefetch(next + k * SHEET, SPLIT_STEP * SHEET);
    }
    if (k < width) {
        _tile_loadd(2, p.rows + k, p.stride);
        _tile_loadd(3, low + k, p.stride);
        _tile_loadd(7, keys + k * SHEET, 64);
        _tile_dpbssd(0, 2, 7);
        _tile_dpbssd(1, 3, 7);
    }
}

/* Scores of a band's rows, with their scales and those of K. */
static void score_bytes(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, const float *scale, int32_t *room,
                        product_rows p) {
    split_sums sums = {room, KV_BLOCK};
    settle();
    for (int32_t s = 0; s < sheets; s++) {
        score_sheet(b->keys[s], b->next_keys[s], width, b->is_read_once, p);
        store_sums(sums, s * SHEET);
    }
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = 0; i < sheets * SHEET; i += LANES)
            store(p.out + r * p.out_stride + i, sum_at(sums, r, i) * (scale[r] * load(b->key_scale + i)));
}

/* Splits the weights of a block, row by row, into the place of its scores. */
static void split_weights(const band_scores *s, float *scale) {
    for (int32_t r = 0; r < s->rows; r++) {
        float *row = (float *)s->weights + r * KV_BLOCK;
        memset(row + s->columns, 0, (size_t)(KV_BLOCK - s->columns) * 4);
        scale[r] = split_row(row, KV_BLOCK, (char *)(s->scores + r * KV_BLOCK));
    }
}

/* Adds weighted values to rows of `mixed`, V being [KV_BLOCK / 4][width][4]. */
static void mix_bytes(const cache_block *b, const band_scores *s, int32_t width, int32_t *room, float *mixed) {
    split_sums sums = {room, width};
    float scale[BAND];
    split_weights(s, scale);
    settle();
    _tile_loadd(4, s->scores, KV_BLOCK * 4);
    _tile_loadd(5, (char *)s->scores + KV_BLOCK, KV_BLOCK * 4);
    for (int32_t column = 0; column < width; column += 16) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(6, b->values[0] + column * 4, width * 4);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        store_sums(sums, column);
    }
    for (int32_t r = 0; r < s->rows; r++, mixed += width)
        for (int32_t i = 0; i < width; i += LANES)
            store(mixed + i, load(mixed + i) + sum_at(sums, r, i) * scale[r]);
}

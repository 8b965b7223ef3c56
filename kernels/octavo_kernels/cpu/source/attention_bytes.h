/* Products of attention by AMX where the cache holds int8: K and V are multiplied as they lie. Rows of queries are split into two
 * bytes an element, so that they keep 15 bits of their largest element; weights are bytes. */

enum { SPLIT_MOST = 127 * 128 };

/* row = scale * (128 high + low): [split_width] high bytes and as many low ones, zero past `width`, a multiple of LANES.
 * Returns the scale. */
static float split_row(const float *row, int32_t width, char *high) {
    char *low = high + split_width(width);
    float most = largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, width), inverse = most > 1e-30f ? SPLIT_MOST / most : 0;
    for (int32_t i = 0; i < width; i += LANES) {
        ints whole = nearest(load(row + i) * inverse);
        ints upper = (whole + 64) >> 7;
        store_bytes(high + i, upper);
        store_bytes(low + i, whole - (upper << 7));
    }
    memset(high + width, 0, (size_t)(split_width(width) - width));
    memset(low + width, 0, (size_t)(split_width(width) - width));
    return most / SPLIT_MOST;
}

/* Tiles 0, 1: sums; 4, 5: high and low bytes of queries; 6: K; 2, 3 and 7: the same for the last bytes of a width that is no
 * multiple of 64. Or 4: weights; 5, 6: V. */
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

/* Scores of a band's rows, with their scales and those of K. `sums`: room for [2][BAND][KV_BLOCK]. */
static void score_bytes(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, const float *scale, int32_t *sums,
                        product_rows p) {
    int32_t *high = sums, *low = sums + BAND * KV_BLOCK;
    settle();
    for (int32_t s = 0; s < sheets; s++) {
        score_sheet(b->keys[s], b->next_keys[s], width, b->is_read_once, p);
        _tile_stored(0, high + s * SHEET, KV_BLOCK * 4);
        _tile_stored(1, low + s * SHEET, KV_BLOCK * 4);
    }
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = r * KV_BLOCK, k = 0; k < sheets * SHEET; i += LANES, k += LANES) {
            ints whole = 128 * load_ints(high + i) + load_ints(low + i);
            store(p.out + i, __builtin_convertvector(whole, floats) * (scale[r] * load(b->key_scale + k)));
        }
}

/* Adds weighted values to rows of `mixed`, V being [KV_BLOCK / 4][width][4]. `sums`: room for [BAND][width]. */
static void mix_bytes(const cache_block *b, const band_scores *s, int32_t width, int32_t *sums, float *mixed) {
    const char *values = b->values[0];
    settle();
    _tile_loadd(4, s->weights, KV_BLOCK);
    for (int32_t column = 0; column < width; column += 32) {
        _tile_zero(0);
        _tile_loadd(6, values + column * 4, width * 4);
        _tile_dpbusd(0, 4, 6);
        _tile_stored(0, sums + column, width * 4);
        if (column + 16 == width)
            break;
        _tile_zero(1);
        _tile_loadd(5, values + (column + 16) * 4, width * 4);
        _tile_dpbusd(1, 4, 5);
        _tile_stored(1, sums + column + 16, width * 4);
    }
    for (int32_t r = 0; r < s->rows; r++)
        for (int32_t i = r * width; i < (r + 1) * width; i += LANES)
            store(mixed + i, load(mixed + i) + __builtin_convertvector(load_ints(sums + i), floats) * s->weight_scale[r]);
}

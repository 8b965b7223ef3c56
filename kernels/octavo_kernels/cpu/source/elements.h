/* Elements of K and V: from and to floats, and where those of a token lie in a block. See octavo_geometry. */

enum { SHEET = 16 }; /* tokens that lie together */

INLINE int is_panelled(const octavo_geometry *g) {
    return g->page_size % SHEET == 0 && g->head_dim % SHEET == 0;
}

INLINE void store_float16(uint16_t *p, floats v) {
#if LANES == 16
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif LANES == 8
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < LANES; i++) {
        _Float16 h = (_Float16)v[i];
        memcpy(p + i, &h, sizeof h);
    }
#endif
}

INLINE floats load_int8(const int8_t *p) {
#if LANES == 16
    return (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#else
    ints i;
    for (int k = 0; k < LANES; k++)
        i[k] = p[k];
    return __builtin_convertvector(i, floats);
#endif
}

INLINE floats load_elements(const void *p, int32_t type, int64_t i) {
    if (type == OCTAVO_FLOAT16)
        return load_float16((const uint16_t *)p + i);
    if (type == OCTAVO_INT8)
        return load_int8((const int8_t *)p + i);
    return read_floats(p, type, i);
}

INLINE void store_elements(void *p, int32_t type, int64_t i, floats v) {
    if (type == OCTAVO_FLOAT16)
        store_float16((uint16_t *)p + i, v);
    else if (type == OCTAVO_INT8)
        store_bytes((int8_t *)p + i, nearest(v));
    else
        write_floats(p, type, i, v);
}

/* A row of activations. */
static void to_floats(const char *row, int32_t type, int32_t width, float *out) {
    int32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        store(out + i, read_floats(row, type, i));
    for (; i < width; i++)
        out[i] = read_float(row, type, i);
}

/* The smallest bfloat16 that no element of a row clips under: row / scale lies within 127. */
static uint16_t scale_of(const float *row, int32_t width) {
    float most = largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, width);
    uint16_t scale = to_bfloat16(most / 127);
    return from_bfloat16(scale) * 127 < most ? scale + 1 : scale;
}

/* Words of four bytes of a row to a sheet of K, [dimension / g][token][g]. */
static void place_key(char *sheet, int64_t token, const char *row, int64_t row_bytes) {
    for (int64_t i = 0; i < row_bytes; i += 4)
        memcpy(sheet + i * SHEET + token * 4, row + i, 4);
}

/* Elements of a row to V, [token / g][dimension][g]. */
static void place_value(char *values, int64_t token, const char *row, int32_t width, int64_t size) {
    char *at = values + token * size / 4 * width * 4 + token * size % 4;
    if (size == 4)
        memcpy(at, row, (size_t)width * 4);
    else if (size == 2)
        for (int32_t i = 0; i < width; i++)
            memcpy(at + 4 * i, row + 2 * i, 2);
    else
        for (int32_t i = 0; i < width; i++)
            at[4 * i] = row[i];
}

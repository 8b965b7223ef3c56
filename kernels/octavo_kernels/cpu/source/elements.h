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

typedef int8_t bytes __attribute__((vector_size(LANES)));

INLINE floats load_elements(const void *p, int32_t type, int64_t i) {
    if (type == OCTAVO_FLOAT16)
        return load_float16((const uint16_t *)p + i);
    if (type != OCTAVO_INT8)
        return read_floats(p, type, i);
    bytes b;
    memcpy(&b, (const char *)p + i, sizeof b);
    return __builtin_convertvector(b, floats);
}

INLINE void store_elements(void *p, int32_t type, int64_t i, floats v) {
    if (type == OCTAVO_FLOAT16)
        store_float16((uint16_t *)p + i, v);
    else if (type != OCTAVO_INT8)
        write_floats(p, type, i, v);
    else {
        bytes b = __builtin_convertvector((ints)(v + splat(12582912.0f)), bytes); /* rounds, see exponential */
        memcpy((char *)p + i, &b, sizeof b);
    }
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
    uint16_t scale = to_bfloat16(largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, width) / 127);
    return from_bfloat16(scale) * 127 < largest_magnitude((const char *)row, OCTAVO_FLOAT32, 0, width) ? scale + 1 : scale;
}

/* Words of four bytes of a row to a sheet of K, [dimension / g][token][g]. */
INLINE void place_key(char *sheet, int64_t token, const char *row, int64_t row_bytes) {
    for (int64_t i = 0; i < row_bytes; i += 4)
        memcpy(sheet + i * SHEET + token * 4, row + i, 4);
}

/* Elements of a row to V, [token / g][dimension][g]. */
INLINE void place_value(char *values, int64_t token, const char *row, int32_t width, int64_t size) {
    int64_t g = 4 / size;
    char *at = values + token / g * width * 4 + token % g * size;
    for (int32_t i = 0; i < width; i++)
        memcpy(at + 4 * i, row + i * size, (size_t)size);
}

/* Products of a few rows and some columns of a panel, with all sums in registers. */

#if LANES == 16
enum { ROWS = 12, COLUMNS = 32 };
#elif LANES == 8
enum { ROWS = 6, COLUMNS = 16 };
#else
enum { ROWS = 3, COLUMNS = 8 };
#endif
enum { VECTORS = COLUMNS / LANES, FEW = 4, STEP_BYTES = 16 * PANEL * 4, STEPS_AHEAD = 4 };

/* Rows of one product: row r of x, of its scales and of the tile. */
typedef struct {
    const char *x;
    int64_t stride;
    const float *scale;
    const float *sums;
    int64_t groups;
    float *tile;
    const char *coming; /* the panel that is read next, or null */
} strip;

#define EACH_VECTOR _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++)
#define EACH_ROW _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++)

INLINE ints load_ints(const void *p) {
    ints v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE int32_t load_int(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* total + the products of two neighbouring bfloat16 of x, the same in every lane, and of w. */
INLINE floats dot2(floats total, ints w, ints x) {
#if defined(__AVX512BF16__)
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(w), "v"(x)); /* the intrinsic makes gcc 12 spill the sums */
    return total;
#else
    floats even = (floats)(x << 16) * (floats)(w << 16), odd = (floats)(x & ~0xffff) * (floats)(w & ~0xffff);
    return total + even + odd;
#endif
}

/* total + the products of four neighbouring unsigned bytes and signed bytes. */
INLINE ints dot4(ints total, ints is_unsigned, ints is_signed) {
#if defined(__AVX512VNNI__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(is_unsigned), "v"(is_signed));
    return total;
#else
    for (int shift = 0; shift < 32; shift += 8)
        total += ((is_unsigned >> shift) & 0xff) * ((is_signed << (24 - shift)) >> 24);
    return total;
#endif
}

INLINE floats load_float16(const uint16_t *p) {
#if LANES == 16
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif LANES == 8
    return (floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    floats v;
    for (int i = 0; i < LANES; i++) {
        _Float16 h;
        memcpy(&h, p + i, sizeof h);
        v[i] = (float)h;
    }
    return v;
#endif
}

INLINE void product_float32(strip s, int rows, const char *w, int32_t padded) {
    floats sum[ROWS][VECTORS] = {{{0}}};
    for (int32_t k = 0; k < padded; k++) {
        floats b[VECTORS];
        EACH_VECTOR b[v] = load((const float *)w + k * PANEL + v * LANES);
        EACH_ROW EACH_VECTOR sum[r][v] += ((const float *)(s.x + r * s.stride))[k] * b[v];
    }
    EACH_ROW EACH_VECTOR store(s.tile + r * PANEL + v * LANES, sum[r][v]);
}

#if defined(__AMX_TILE__)
/* a * b + total, rounded once, whatever the compiler is told of contraction. */
INLINE floats fused(floats a, floats b, floats total) {
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)total);
}

/* As the tiles sum, to the bit: of 32 inputs first those at even and at odd places, in turn, then both together. */
INLINE void product_bfloat16(strip s, int rows, const char *w, int32_t padded) {
    floats sum[ROWS][VECTORS] = {{{0}}};
    for (int32_t step = 0, steps = padded / 32; step < steps; step++) {
        const char *ahead = step + STEPS_AHEAD < steps ? w + (step + STEPS_AHEAD) * STEP_BYTES
                            : s.coming                 ? s.coming + (step + STEPS_AHEAD - steps) * STEP_BYTES
                                                       : w;
        floats even[ROWS][VECTORS] = {{{0}}}, odd[ROWS][VECTORS] = {{{0}}};
        for (int32_t k = step * 16; k < step * 16 + 16; k++) {
            const char *column = w + k * PANEL * 4;
            EACH_VECTOR __builtin_prefetch(ahead + (k - step * 16) * PANEL * 4 + v * LANES * 4, 0, 2);
            EACH_ROW {
                ints x = load_int(s.x + r * s.stride + 4 * k) - (ints){0};
                EACH_VECTOR {
                    ints b = load_ints(column + v * LANES * 4);
                    even[r][v] = fused((floats)(b << 16), (floats)(x << 16), even[r][v]);
                    odd[r][v] = fused((floats)(b & ~0xffff), (floats)(x & ~0xffff), odd[r][v]);
                }
            }
        }
        EACH_ROW EACH_VECTOR sum[r][v] += even[r][v] + odd[r][v];
    }
    EACH_ROW EACH_VECTOR store(s.tile + r * PANEL + v * LANES, sum[r][v]);
}
#else
INLINE void product_bfloat16(strip s, int rows, const char *w, int32_t padded) {
    floats sum[ROWS][VECTORS] = {{{0}}};
    for (int32_t k = 0; k < padded / 2; k++) {
        ints b[VECTORS];
        EACH_VECTOR b[v] = load_ints(w + 4 * (k * PANEL + v * LANES));
        EACH_ROW {
            ints x = load_int(s.x + r * s.stride + 4 * k) - (ints){0};
            EACH_VECTOR sum[r][v] = dot2(sum[r][v], b[v], x);
        }
    }
    EACH_ROW EACH_VECTOR store(s.tile + r * PANEL + v * LANES, sum[r][v]);
}
#endif

INLINE void product_int8(strip s, int rows, const char *w, int32_t padded, const float *scale, const int32_t *sums) {
    ints sum[ROWS][VECTORS] = {{{0}}};
    for (int32_t k = 0; k < padded / 4; k++) {
        ints b[VECTORS];
        EACH_VECTOR b[v] = load_ints(w + 4 * (k * PANEL + v * LANES));
        EACH_ROW {
            ints x = load_int(s.x + r * s.stride + 4 * k) - (ints){0};
            EACH_VECTOR sum[r][v] = dot4(sum[r][v], x, b[v]);
        }
    }
    EACH_ROW EACH_VECTOR {
        floats exact = __builtin_convertvector(sum[r][v] - 128 * load_ints(sums + v * LANES), floats);
        store(s.tile + r * PANEL + v * LANES, exact * load(scale + v * LANES) * s.scale[r]);
    }
}

/* The quad'th vector of unsigned weights of a group. */
INLINE ints quad_of(const char *group, int quad, int v, int is_int4) {
    if (!is_int4)
        return load_ints(group + 4 * (quad * PANEL + v * LANES));
    ints both = load_ints(group + 4 * (quad % 4 * PANEL + v * LANES));
    return (quad < 4 ? both : both >> 4) & 0x0f0f0f0f;
}

INLINE void product_groups(strip s, int rows, const char *w, const uint16_t *scale, const uint16_t *low, int is_int4) {
    floats sum[ROWS][VECTORS] = {{{0}}};
    for (int64_t g = 0; g < s.groups; g++, w += is_int4 ? GROUP * PANEL / 2 : GROUP * PANEL) {
        ints dot[ROWS][VECTORS] = {{{0}}};
        _Pragma("GCC unroll 8") for (int quad = 0; quad < 8; quad++) {
            ints b[VECTORS];
            EACH_VECTOR b[v] = quad_of(w, quad, v, is_int4);
            EACH_ROW {
                ints x = load_int(s.x + r * s.stride + g * GROUP + 4 * quad) - (ints){0};
                EACH_VECTOR dot[r][v] = dot4(dot[r][v], b[v], x);
            }
        }
        EACH_VECTOR {
            floats step = load_float16(scale + g * PANEL + v * LANES);
            floats least = is_int4 ? load_float16(low + g * PANEL + v * LANES) : step * -128.0f;
            EACH_ROW {
                sum[r][v] += __builtin_convertvector(dot[r][v], floats) * (step * s.scale[r * s.groups + g]);
                sum[r][v] += least * s.sums[r * s.groups + g];
            }
        }
    }
    EACH_ROW EACH_VECTOR store(s.tile + r * PANEL + v * LANES, sum[r][v]);
}

/* Columns from `column` on of a panel, for a number of rows that the compiler knows. */
INLINE void product(const octavo_weight *w, strip s, int rows, int64_t panel, int column) {
    const char *data = panel_of(w, panel);
    int64_t n = panel * PANEL + column, group = panel * s.groups * PANEL + column;
    int32_t padded = padded_inputs(w);
    s.tile += column;
    if (w->type == OCTAVO_FLOAT32)
        product_float32(s, rows, data + 4 * column, padded);
    else if (w->type == OCTAVO_BFLOAT16)
        product_bfloat16(s, rows, data + 4 * column, padded);
    else if (w->type == OCTAVO_INT8)
        product_int8(s, rows, data + 4 * column, padded, (const float *)w->scale + n, w->sum + n);
    else if (w->type == OCTAVO_INT4)
        product_groups(s, rows, data + 4 * column, (const uint16_t *)w->scale + group, (const uint16_t *)w->low + group, 1);
    else
        product_groups(s, rows, data + 4 * column, (const uint16_t *)w->scale + group, NULL, 0);
}

static void multiply_vectors(const octavo_weight *w, const staged *x, int64_t panel, int64_t first, int32_t rows, float *tile,
                             const char *coming) {
    int64_t groups = is_grouped(w->type) ? padded_inputs(w) / GROUP : 1;
    int32_t most = is_grouped(w->type) ? ROWS / 2 : ROWS; /* groups need a second set of sums */
    for (int column = 0; column < PANEL; column += COLUMNS)
        for (int32_t r = 0, count; r < rows; r += count) {
            int64_t row = first + r;
            strip s = {x->data + row * x->stride, x->stride, x->scale + row * groups, x->sums + row * groups, groups,
                       tile + r * PANEL, coming};
            count = rows - r < most ? rows - r : most;
            switch (count) {
#define CASE(n)                                                                                                                  \
    case n:                                                                                                                      \
        product(w, s, n, panel, column);                                                                                         \
        break;
                CASE(1) CASE(2) CASE(3)
#if LANES >= 8
                CASE(4) CASE(5) CASE(6)
#endif
#if LANES == 16
                CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
#undef CASE
            }
        }
}

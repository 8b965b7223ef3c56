/* Products of attention in vectors: some rows by four vectors of columns at once, all sums in registers. */

#if LANES == 16
enum { QUERY_ROWS = 6 };
#else
enum { QUERY_ROWS = 2 };
#endif
enum { WIDE = 4, KEYS_AT_ONCE = WIDE * LANES };

#define EACH_QUERY _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
#define EACH_OF(count) _Pragma("GCC unroll 4") for (int v = 0; v < count; v++)

/* Rows of queries or of weights, and where their products go. */
typedef struct {
    const char *rows;
    int64_t stride; /* bytes */
    float *out;
    int64_t out_stride; /* floats */
} product_rows;

/* total + the products of one float32 or of two neighbouring bfloat16. */
INLINE floats add_products(floats total, ints cached, const char *x, int size) {
    ints same = load_int(x) - (ints){0};
    return size == 4 ? total + (floats)cached * (floats)same : dot2(total, cached, same);
}

/* Scores of some rows for the keys from `first` on. */
INLINE void score_rows(int rows, int size, const cache_block *b, int32_t first, int32_t width, product_rows p) {
    floats sum[QUERY_ROWS][WIDE] = {{{0}}};
    const char *keys[WIDE], *next[WIDE];
    EACH_OF(WIDE) {
        int32_t column = first + v * LANES, sheet = column / SHEET < b->sheets ? column / SHEET : b->sheets - 1;
        keys[v] = b->keys[sheet] + column % SHEET * 4;
        next[v] = b->next_keys[sheet] + column % SHEET * 4;
    }
    for (int64_t k = 0; k < width * size; k += 4) {
        ints key[WIDE];
        EACH_OF(WIDE) {
            key[v] = load_ints(keys[v] + k * SHEET);
            __builtin_prefetch(next[v] + k * SHEET, 0, 2);
        }
        EACH_QUERY EACH_OF(WIDE) sum[r][v] = add_products(sum[r][v], key[v], p.rows + r * p.stride + k, size);
    }
    EACH_QUERY EACH_OF(WIDE) store(p.out + r * p.out_stride + first + v * LANES, sum[r][v]);
}

/* Adds weighted values of `sheets` sheets to some columns of some rows. */
INLINE void mix_rows(int rows, int vectors, int size, const cache_block *b, int32_t sheets, int32_t width, int32_t column,
                     product_rows p) {
    floats sum[QUERY_ROWS][WIDE];
    EACH_QUERY EACH_OF(vectors) sum[r][v] = load(p.out + r * p.out_stride + column + v * LANES);
    for (int32_t s = 0; s < sheets; s++) {
        const char *values = b->values[s] + 4 * column, *weights = p.rows + s * SHEET * size;
        const char *next = b->next_values[s] + 4 * column;
        for (int64_t k = 0; k < SHEET * size; k += 4, values += 4 * width, next += 4 * width) {
            ints value[WIDE];
            EACH_OF(vectors) {
                value[v] = load_ints(values + 4 * v * LANES);
                __builtin_prefetch(next + 4 * v * LANES, 0, 2);
            }
            EACH_QUERY EACH_OF(vectors) sum[r][v] = add_products(sum[r][v], value[v], weights + r * p.stride + k, size);
        }
    }
    EACH_QUERY EACH_OF(vectors) store(p.out + r * p.out_stride + column + v * LANES, sum[r][v]);
}

/* CASE(n) for a number of rows that the compiler then knows. */
#if LANES == 16
#define CASES_OF_ROWS CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#else
#define CASES_OF_ROWS CASE(1) CASE(2)
#endif

INLINE void score_vectors(int size, const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    for (int32_t count; rows > 0; rows -= count, p.rows += count * p.stride, p.out += count * p.out_stride) {
        count = rows < QUERY_ROWS ? rows : QUERY_ROWS;
        for (int32_t first = 0; first < sheets * SHEET; first += KEYS_AT_ONCE)
            switch (count) {
#define CASE(n)                                                                                                                  \
    case n:                                                                                                                      \
        score_rows(n, size, b, first, width, p);                                                                                 \
        break;
                CASES_OF_ROWS
#undef CASE
            }
    }
}

INLINE void mix_vectors(int size, const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    for (int32_t count; rows > 0; rows -= count, p.rows += count * p.stride, p.out += count * p.out_stride) {
        count = rows < QUERY_ROWS ? rows : QUERY_ROWS;
        for (int32_t column = 0, wide; column < width; column += wide ? WIDE * LANES : LANES) {
            wide = column + WIDE * LANES <= width;
            switch (count) {
#define CASE(n)                                                                                                                  \
    case n:                                                                                                                      \
        if (wide)                                                                                                                \
            mix_rows(n, WIDE, size, b, sheets, width, column, p);                                                                \
        else                                                                                                                     \
            mix_rows(n, 1, size, b, sheets, width, column, p);                                                                   \
        break;
                CASES_OF_ROWS
#undef CASE
            }
        }
    }
}

static void score_float32(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    score_vectors(4, b, sheets, rows, width, p);
}

static void mix_float32(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    mix_vectors(4, b, sheets, rows, width, p);
}

#if defined(__AVX512BF16__) && !defined(__AMX_TILE__)
static void score_bfloat16(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    score_vectors(2, b, sheets, rows, width, p);
}

static void mix_bfloat16(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, product_rows p) {
    mix_vectors(2, b, sheets, rows, width, p);
}
#endif

/* Products by AMX: 32 rows by 32 columns in four tiles of sums, 64 bytes of k at a time. */

enum { STEPS_AT_ONCE = 18 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* The tile instructions of gcc 12 do not tell the compiler what memory they read; this keeps writes to it in front of them. */
INLINE void settle(void) {
    __asm__ volatile("" ::: "memory");
}

/* Tiles 0-3: sums (2 x 2); 4, 5: rows of x; 6, 7: columns of the weight. */
static void shape_tiles(int upper, int lower) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = 16;
    }
    shapes.rows[0] = shapes.rows[1] = shapes.rows[4] = (uint8_t)upper;
    shapes.rows[2] = shapes.rows[3] = shapes.rows[5] = (uint8_t)(lower ? lower : 1);
    settle();
    _tile_loadconfig(&shapes);
}

/* Meanwhile the panel that is coming is fetched from memory, `fetched` bytes of it in each step. */
#define TILE_STEPS(DOT, LOWER)                                                                                                   \
    for (int32_t k = 0; k < steps; k++, x += 64, w += STEP_BYTES, coming += STEP_BYTES) {                                        \
        for (int32_t j = 0; j < fetched; j += 64)                                                                                \
            __builtin_prefetch(coming + j, 0, 2);                                                                                \
        _tile_stream_loadd(4, x, stride);                                                                                               \
        _tile_loadd(6, w, PANEL * 4);                                                                                            \
        _tile_loadd(7, w + 64, PANEL * 4);                                                                                       \
        DOT(0, 4, 6);                                                                                                            \
        DOT(1, 4, 7);                                                                                                            \
        if (LOWER) {                                                                                                             \
            _tile_stream_loadd(5, x + 16 * stride, stride);                                                                             \
            DOT(2, 5, 6);                                                                                                        \
            DOT(3, 5, 7);                                                                                                        \
        }                                                                                                                        \
    }

/* tile [32][PANEL], or its upper half, plus the products of some steps; `is_first`: nothing before them. */
static void sum_tiles(const char *x, int64_t stride, const char *w, int32_t steps, int is_int8, int lower, int is_first,
                      char *tile, const char *coming, int32_t fetched) {
    char *below = tile + 16 * PANEL * 4;
    if (is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, tile, PANEL * 4);
        _tile_loadd(1, tile + 64, PANEL * 4);
        _tile_loadd(2, below, PANEL * 4);
        _tile_loadd(3, below + 64, PANEL * 4);
    }
    if (is_int8 && lower)
        TILE_STEPS(_tile_dpbusd, 1)
    else if (is_int8)
        TILE_STEPS(_tile_dpbusd, 0)
    else if (lower)
        TILE_STEPS(_tile_dpbf16ps, 1)
    else
        TILE_STEPS(_tile_dpbf16ps, 0)
    _tile_stored(0, tile, PANEL * 4);
    _tile_stored(1, tile + 64, PANEL * 4);
    if (lower) {
        _tile_stored(2, below, PANEL * 4);
        _tile_stored(3, below + 64, PANEL * 4);
    }
}

static void scale_int8(const octavo_weight *w, const float *x_scale, int64_t panel, int32_t rows, float *tile) {
    const float *scale = (const float *)w->scale + panel * PANEL;
    const int32_t *sum = w->sum + panel * PANEL;
    for (int32_t r = 0; r < rows; r++)
        for (int j = 0; j < PANEL; j += LANES) {
            float *at = tile + r * PANEL + j;
            floats exact = __builtin_convertvector(load_ints(at) - 128 * load_ints(sum + j), floats);
            store(at, exact * load(scale + j) * x_scale[r]);
        }
}

/* Some steps for all rows, then the next steps: so much of the panel stays in the first cache. */
static void multiply_tiles(const octavo_weight *w, const staged *x, int64_t panel, int64_t first, int32_t rows, float *tile,
                           const char *coming) {
    int is_int8 = w->type == OCTAVO_INT8;
    int32_t steps = padded_inputs(w) / (is_int8 ? 64 : 32), blocks = (rows + 31) / 32;
    int32_t fetched = coming ? (STEP_BYTES / 64 + blocks - 1) / blocks * 64 : 0;
    for (int32_t k = 0, count; k < steps; k += count) {
        count = steps - k < STEPS_AT_ONCE ? steps - k : STEPS_AT_ONCE;
        for (int32_t r = 0; r < rows; r += 32) {
            int32_t upper = rows - r < 16 ? rows - r : 16, lower = rows - r > 32 ? 16 : rows - r - upper;
            if (r == 0 || rows - r < 32) /* a full block has the shapes of the one before */
                shape_tiles(upper, lower);
            sum_tiles(x->data + (first + r) * x->stride + k * 64, x->stride, panel_of(w, panel) + k * STEP_BYTES, count, is_int8,
                      lower, k == 0, (char *)(tile + r * PANEL), coming + k * STEP_BYTES + r / 32 * fetched, fetched);
        }
    }
    if (is_int8)
        scale_int8(w, x->scale + first, panel, rows, tile);
}

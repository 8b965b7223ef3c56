/* Softmax over positions, block by block. Weights are 2^(score - top), where top is the largest score of the first block
 * that a row saw. Floats have exponents to spare, so top is raised only when weights grow beyond LIMIT. */

enum { BAND = 16 };
#define LOG2_E 1.44269504f
#define LOWEST -1e30f /* below every score, and yet a number */
#define LIMIT 0x1p60f

/* 2^x: 1 at 0 and 0 below -127 exactly, more than LIMIT above 127, NaN for NaN. Within 1e-7, or 1e-4 if that will do. */
INLINE floats power_of_two(floats x, int roughly) {
#if LANES == 16
    floats r = (floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    x = minimum(splat(127.9f), maximum(splat(-126.99f), x));
#if LANES == 8
    floats whole = (floats)_mm256_floor_ps((__m256)x);
#else
    floats whole = x - 0.5f + splat(12582912.0f) - splat(12582912.0f);
#endif
    floats r = x - whole;
#endif
    floats p;
    if (roughly)
        p = (splat(0.07706724f) * r + splat(0.22764498f)) * r + splat(0.69511664f);
    else {
        p = splat(0.00021029028f) * r + splat(0.0012631983f);
        p = p * r + splat(0.00965862f);
        p = p * r + splat(0.055492904f);
        p = p * r + splat(0.24022786f);
        p = p * r + splat(0.6931471f);
    }
    p = p * r + splat(1);
#if LANES == 16
    return (floats)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    return p * (floats)((__builtin_convertvector(whole, ints) + 127) << 23);
#endif
}

/* Of the rows of one band: what scores are compared with, sums of weights lane by lane, and sums of weighted values. */
typedef struct {
    float *top;   /* [BAND] */
    float *total; /* [BAND][LANES] */
    float *mixed; /* [BAND][width] */
} band_sums;

/* Scores of one band for the first `columns` positions of a block. */
typedef struct {
    float *scores; /* [BAND][KV_BLOCK] */
    char *weights; /* [BAND][KV_BLOCK] elements of the products */
    int32_t rows;
    int32_t columns; /* a multiple of 32 */
    float scale;
    const float *key_scale; /* of int8 */
    const float *value_scale;
    float *weight_scale; /* [BAND] of weights in bytes */
} band_scores;

INLINE void scale_scores(const band_scores *s) {
    for (int32_t r = 0; r < s->rows; r++)
        for (int32_t i = 0; i < s->columns; i += LANES) {
            float *at = s->scores + r * KV_BLOCK + i;
            store(at, load(at) * load(s->key_scale + i));
        }
}

/* tanh(x) within 4e-7 of |x|, 1 for infinity, NaN for NaN: a series near 0, where the other form loses all digits. */
INLINE floats hyperbolic_tangent(floats x) {
    floats size = choose(x < splat(0), -x, x), t = power_of_two(size * splat(-2 * LOG2_E), 0), far = (1 - t) / (1 + t), square = x * x;
    floats near = ((splat(0.021869488f) * square - splat(0.053968254f)) * square + splat(0.13333333f)) * square - splat(0.33333333f);
    return choose(size < splat(0.25f), x + x * square * near, choose(x < splat(0), -far, far));
}

/* score = cap * tanh(score / cap). */
static void cap_scores(const band_scores *s, float cap) {
    for (int32_t r = 0; r < s->rows; r++)
        for (int32_t i = 0; i < s->columns; i += LANES) {
            float *at = s->scores + r * KV_BLOCK + i;
            store(at, hyperbolic_tangent(load(at) * (1 / cap)) * cap);
        }
}

INLINE ints numbered_lanes(void) {
    ints lane;
    for (int i = 0; i < LANES; i++)
        lane[i] = i;
    return lane;
}

/* Row r sees positions before `seen[r]`; the block begins at `start`. */
INLINE void hide_future(const band_scores *s, const int32_t *seen, int32_t start) {
    ints lane = numbered_lanes();
    for (int32_t r = 0; r < s->rows; r++)
        for (int32_t i = 0; i < s->columns; i += LANES) {
            float *at = s->scores + r * KV_BLOCK + i;
            store(at, choose(lane + start + i < seen[r], load(at), splat(-INFINITY)));
        }
}

/* And none that lie more than `window` before it. */
static void hide_past(const band_scores *s, const int32_t *seen, int32_t window, int32_t start) {
    ints lane = numbered_lanes();
    for (int32_t r = 0; r < s->rows; r++)
        for (int32_t i = 0; i < s->columns; i += LANES) {
            float *at = s->scores + r * KV_BLOCK + i;
            store(at, choose(lane + start + i < seen[r] - window, splat(-INFINITY), load(at)));
        }
}

/* Raises a row's top to the largest score of this block, and scales its sums accordingly. */
INLINE void raise_top(const band_scores *s, int32_t columns, int32_t r, const band_sums *sums, int32_t width) {
    const float *scores = s->scores + r * KV_BLOCK;
    floats most = load(scores);
    for (int32_t i = LANES; i < columns; i += LANES)
        most = maximum(most, load(scores + i));
    float top = largest_of(most) * s->scale;
    if (!(top > sums->top[r]))
        return;
    floats keep = power_of_two(splat(sums->top[r] - top), 0);
    sums->top[r] = top;
    store(sums->total + r * LANES, load(sums->total + r * LANES) * keep);
    for (int32_t i = r * width; i < (r + 1) * width; i += LANES)
        store(sums->mixed + i, load(sums->mixed + i) * keep);
}

INLINE int exceeds_limit(floats v) {
#if LANES == 16
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(LIMIT), _CMP_GT_OQ) != 0;
#elif LANES == 8
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(LIMIT), _CMP_GT_OQ)) != 0;
#else
    return v[0] > LIMIT || v[1] > LIMIT || v[2] > LIMIT || v[3] > LIMIT;
#endif
}

INLINE void store_weights(char *row, int32_t i, floats first, floats second, int size) {
#if defined(__AVX512BF16__)
    if (size == 2) {
        __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
        memcpy(row + 2 * i, &both, sizeof both);
        return;
    }
#endif
    write_floats(row, size == 2 ? OCTAVO_BFLOAT16 : OCTAVO_FLOAT32, i, first);
    write_floats(row, size == 2 ? OCTAVO_BFLOAT16 : OCTAVO_FLOAT32, i + LANES, second);
}

/* weights = 2^(scores - top), times the scales of V; the sum of `total` and all weights, lane by lane. */
INLINE floats weigh_row(const band_scores *s, int32_t columns, int32_t r, float top, floats total, int type) {
    const float *scores = s->scores + r * KV_BLOCK;
    floats sum[2] = {total, splat(0)};
    for (int32_t i = 0; i < columns; i += 2 * LANES) {
        floats w[2];
        for (int k = 0; k < 2; k++) {
            w[k] = power_of_two(load(scores + i + k * LANES) * s->scale - top, type == OCTAVO_BFLOAT16 || type == OCTAVO_INT8);
            sum[k] += w[k];
            if (type == OCTAVO_INT8)
                w[k] *= load(s->value_scale + i + k * LANES);
        }
        store_weights(s->weights + r * KV_BLOCK * product_size(type), i, w[0], w[1], product_size(type));
    }
    return sum[0] + sum[1];
}

/* The same with weights in bytes, in parts of 255 of the row's largest. */
INLINE floats weigh_row_in_bytes(const band_scores *s, int32_t columns, int32_t r, float top, floats total) {
    const float *scores = s->scores + r * KV_BLOCK;
    char *weights = s->weights + r * KV_BLOCK;
    floats w[KV_BLOCK / LANES] = {{0}}, sum[2] = {total, splat(0)}, most = splat(0);
    for (int32_t i = 0; i < columns / LANES; i++) {
        w[i] = power_of_two(load(scores + i * LANES) * s->scale - top, 1);
        sum[i % 2] += w[i];
        w[i] *= load(s->value_scale + i * LANES);
        most = maximum(most, w[i]);
    }
    float largest = largest_of(most), inverse = largest > 1e-30f ? 255 / largest : 0;
    for (int32_t i = 0; i < KV_BLOCK / LANES; i++)
        store_bytes(weights + i * LANES, nearest(w[i] * inverse));
    s->weight_scale[r] = largest / 255;
    return sum[0] + sum[1];
}

INLINE floats weigh_row_as(const band_scores *s, int32_t columns, int32_t r, float top, floats total, int type) {
    return product_size(type) == 1 ? weigh_row_in_bytes(s, columns, r, top, total) : weigh_row(s, columns, r, top, total, type);
}

/* Turns scores into weights and adds these to the totals. */
INLINE void weigh_columns(const band_scores *s, int32_t columns, const band_sums *sums, int32_t width, int type) {
    for (int32_t r = 0; r < s->rows; r++) {
        float *total = sums->total + r * LANES;
        floats grown = weigh_row_as(s, columns, r, sums->top[r], load(total), type);
        if (exceeds_limit(grown)) {
            raise_top(s, columns, r, sums, width);
            grown = weigh_row_as(s, columns, r, sums->top[r], load(total), type);
        }
        store(total, grown);
    }
}

INLINE void weigh(const band_scores *s, const band_sums *sums, int32_t width, int type) {
    for (int32_t r = 0; r < s->rows; r++)
        if (sums->top[r] == LOWEST) /* it has seen nothing yet */
            raise_top(s, s->columns, r, sums, width);
    if (s->columns == KV_BLOCK)
        weigh_columns(s, KV_BLOCK, sums, width, type); /* loops that the compiler unrolls */
    else
        weigh_columns(s, s->columns, sums, width, type);
}

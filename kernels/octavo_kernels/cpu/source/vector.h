/* Vectors of the width that a variant likes, through the compiler's vector extensions; LANES floats each. */
#ifndef OCTAVO_VECTOR_H
#define OCTAVO_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

INLINE floats load(const float *p) {
    floats v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, floats v) {
    memcpy(p, &v, sizeof v);
}

INLINE floats splat(float x) {
    return x - (floats){0};
}

INLINE float from_bfloat16(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* Round to nearest, ties to even; NaN stays NaN. */
INLINE uint16_t to_bfloat16(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    if ((word & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(word >> 16 | 0x40);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

INLINE floats load_bfloat16(const uint16_t *p) {
#if LANES == 16
    return (floats)((words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)) << 16);
#elif LANES == 8
    return (floats)((words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)) << 16);
#else
    halves h;
    memcpy(&h, p, sizeof h);
    return (floats)(__builtin_convertvector(h, words) << 16);
#endif
}

INLINE void store_bfloat16(uint16_t *p, floats v) {
#if defined(__AVX512BF16__)
    __m256bh h = _mm512_cvtneps_pbh((__m512)v); /* what is below 1.2e-38 becomes 0 */
#else
    words w = (words)v;
    words rounded = (w + 0x7fff + ((w >> 16) & 1)) >> 16;
    words is_nan = (words)((w & 0x7fffffff) > 0x7f800000);
    halves h = __builtin_convertvector((rounded & ~is_nan) | ((w >> 16 | 0x40) & is_nan), halves);
#endif
    memcpy(p, &h, sizeof h);
}

/* The integers next to v, ties to even, for |v| below 2^22: 1.5 * 2^23 leaves no bits for a fraction. */
INLINE ints nearest(floats v) {
    return (ints)(v + splat(12582912.0f)) - 0x4b400000;
}

/* The lowest byte of each. */
INLINE void store_bytes(void *p, ints v) {
#if LANES == 16
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
#else
    for (int i = 0; i < LANES; i++)
        ((uint8_t *)p)[i] = (uint8_t)v[i];
#endif
}

/* Lane by lane: a where `where` is all ones, b where it is zero (comparisons make such masks). */
INLINE floats choose(ints where, floats a, floats b) {
    return (floats)((where & (ints)a) | (~where & (ints)b));
}

/* Bit i: lane i of a mask. */
INLINE unsigned lanes_where(ints where) {
#if LANES == 16
    return _mm512_movepi32_mask((__m512i)where);
#elif LANES == 8
    return (unsigned)_mm256_movemask_ps((__m256)where);
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_ps((__m128)where);
#else
    unsigned lanes = 0;
    for (int i = 0; i < LANES; i++)
        lanes |= (unsigned)(where[i] & 1) << i;
    return lanes;
#endif
}

/* b where either is NaN. */
INLINE floats maximum(floats a, floats b) {
#if LANES == 16
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return choose(a > b, a, b);
#endif
}

INLINE floats minimum(floats a, floats b) {
#if LANES == 16
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return choose(a < b, a, b);
#endif
}

INLINE float sum_of(floats v) {
#if LANES == 16
    return _mm512_reduce_add_ps((__m512)v);
#elif LANES == 8
    v += __builtin_shuffle(v, (ints){4, 5, 6, 7, 0, 1, 2, 3});
    v += __builtin_shuffle(v, (ints){2, 3, 0, 1, 6, 7, 4, 5});
    return v[0] + v[1];
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

INLINE float largest_of(floats v) {
#if LANES == 16
    return _mm512_reduce_max_ps((__m512)v);
#elif LANES == 8
    v = maximum(v, __builtin_shuffle(v, (ints){4, 5, 6, 7, 0, 1, 2, 3}));
    v = maximum(v, __builtin_shuffle(v, (ints){2, 3, 0, 1, 6, 7, 4, 5}));
    return v[0] > v[1] ? v[0] : v[1];
#else
    float even = v[0] > v[2] ? v[0] : v[2], odd = v[1] > v[3] ? v[1] : v[3];
    return even > odd ? even : odd;
#endif
}

/* e^x within 2 ulp; 0 below -87.3, e^88.37 above, NaN for NaN. 2^n * p(r): Cody and Waite's reduction to |r| <= ln 2 / 2, then
 * a minimax polynomial. */
INLINE floats exponential(floats x) {
    floats clamped = minimum(splat(88.37f), maximum(splat(-87.33654f), x));
    floats shifted = clamped * splat(1.44269504f) + splat(12582912.0f); /* 1.5 * 2^23: an integer n in the low bits */
    floats n = shifted - splat(12582912.0f);
    floats r = clamped - n * splat(0.693145752f);
    r -= n * splat(1.42860677e-6f);
    floats p = splat(0.001383683574f) * r + splat(0.008374824031f);
    p = p * r + splat(0.04166822619f);
    p = p * r + splat(0.1666642007f);
    p = p * r + splat(0.4999999208f);
    p = p * r + splat(1.000000036f);
    p = p * r + splat(1);
    floats scale = (floats)(((ints)shifted << 23) + 0x3f800000);
    return choose(x < splat(-87.33654f), splat(0), p * scale);
}

#endif

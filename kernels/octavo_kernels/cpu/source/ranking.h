/* A row of logits ranked: descending, ties by ascending token id. Nothing here sorts a vocabulary.
 *
 * A token's distance is (largest logit - its logit) / temperature, so ranks are ascending distances. The bits of a float that
 * is not negative order like the float. Its mass is exp(-distance) in units of 2^-44, an integer: sums of masses are exact,
 * whatever their order, so every way to a rank agrees on where it lies. A row that is ranked has no NaN and a finite largest logit.
 *
 * Two ways lead to a rank. The list holds the first ranks, sorted; most draws end there. The bins hold the whole row by the
 * upper bits of the distance; the bin that holds the rank is split by further bits until all of it is ties.
 */
#ifndef OCTAVO_RANKING_H
#define OCTAVO_RANKING_H

#include <float.h>

enum {
    MAX_VOCABULARY = 1 << 18,
    STRETCH = 16,    /* logits that share a maximum, LANES apart */
    WANTED = 512,  /* ranks that the first list aims at; a second one at four times as many */
    LISTED = 8192, /* room of a list */
    UPPER = 13,    /* bits of a distance that the first bins tell apart; its sign is always 0 */
    LOWER = 9,     /* bits of the second and of the third */
};

#define NO_LIMIT UINT64_MAX

/* A rank, counted from 1, and the mass of all ranks up to it. */
typedef struct {
    uint64_t rank;
    uint64_t mass;
    int32_t token;
} standing;

typedef struct {
    uint64_t count;
    uint64_t mass;
} bin;

typedef struct {
    const float *logits;
    int32_t vocabulary;
    float top; /* the largest logit */
    float temperature;
    int32_t num_maxima;
    int32_t num_listed;
    int is_complete; /* the list holds every token that has any mass */
    int uses_list;
    int is_lost;       /* a rank that was looked for lies past the list */
    uint64_t row_mass; /* of all tokens; 0: not summed yet */
    _Alignas(64) float maxima[MAX_VOCABULARY / STRETCH + STRETCH * LANES];
    uint64_t keys[LISTED + LANES]; /* distance, then token; the rank is the index + 1 */
    uint64_t spare[LISTED + LANES];
    _Alignas(64) float weight[LISTED + LANES];
    _Alignas(64) int64_t mass[LISTED + LANES];
    bin bins[1 << UPPER];
    bin split[1 << LOWER];
} ranking;

typedef double doubles __attribute__((vector_size(4 * LANES)));
typedef int64_t masses __attribute__((vector_size(4 * LANES)));

/* The lanes from j on; past the end of the row: minus infinity. */
INLINE floats read_logits(const ranking *r, int32_t j) {
    if (j + LANES <= r->vocabulary)
        return load(r->logits + j);
    floats v = splat(-INFINITY);
    memcpy(&v, r->logits + j, sizeof(float) * (size_t)(r->vocabulary - j));
    return v;
}

INLINE floats distance_of(const ranking *r, floats logits) {
    floats below = minimum(r->top - logits, splat(INFINITY));
    return r->temperature == 1 ? below : below / r->temperature;
}

INLINE floats weight_of(floats distance) {
    return exponential(-distance);
}

/* Adding 2^8 leaves 44 bits behind the point, which are then the low bits of the double. */
INLINE masses half_of_masses(const float *weight) {
#if LANES == 16
    doubles wide = (doubles)_mm512_cvtps_pd(_mm256_loadu_ps(weight));
#elif LANES == 8
    doubles wide = (doubles)_mm256_cvtps_pd(_mm_loadu_ps(weight));
#else
    doubles wide = {weight[0], weight[1]};
#endif
    return (masses)(wide + 0x1p8) - (masses)((doubles){0} + 0x1p8);
}

INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* No token that is this far away or nearer has a smaller logit. Saves a division where most tokens are further. */
static float least_logit(const ranking *r, float distance) {
    return r->top - fminf(distance, INFINITY) * r->temperature * (1 + 0x1p-20f) - FLT_MIN;
}

/* No token that is this far away or further has a larger logit. */
static float most_logit(const ranking *r, float distance) {
    return r->top - fminf(distance, FLT_MAX) * r->temperature * (1 - 0x1p-20f) + FLT_MIN;
}

/* Maxima of the row and their largest. Returns 0 if a logit is a NaN or infinite, or all are minus infinity. */
static int survey(ranking *r) {
    floats top = splat(-INFINITY);
    ints unsound = {0};
    r->num_maxima = 0;
    for (int32_t start = 0; start < r->vocabulary; start += STRETCH * LANES) {
        floats most = splat(-INFINITY);
        int32_t end = start + STRETCH * LANES < r->vocabulary ? start + STRETCH * LANES : r->vocabulary;
        for (int32_t j = start; j < end; j += LANES) {
            floats logits = read_logits(r, j);
            unsound |= ~(logits < splat(INFINITY));
            most = maximum(logits, most);
        }
        store(r->maxima + r->num_maxima, most);
        r->num_maxima += LANES;
        top = maximum(most, top);
    }
    r->top = largest_of(top) + 0.0f; /* no -0, so that no distance is one */
    return !lanes_where(unsound) && r->top > -INFINITY;
}

/* The lowest token id that has the largest logit. */
static int32_t find_top(const ranking *r) {
    int32_t span = 0;
    while (!lanes_where(load(r->maxima + span) == r->top))
        span += LANES;
    for (int32_t j = span * STRETCH;; j += LANES) {
        unsigned found = lanes_where(read_logits(r, j) == r->top);
        if (found)
            return j + __builtin_ctz(found);
    }
}

/* Of the float that is at `order` among all floats, counted from 0. */
static float float_at(int32_t order) {
    return float_of((uint32_t)(order >= 0 ? order : order ^ 0x7fffffff));
}

static int32_t order_of(float x) {
    int32_t bits = (int32_t)bits_of(x);
    return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

static int32_t count_maxima(const ranking *r, float least) {
    ints count = {0};
    for (int32_t j = 0; j < r->num_maxima; j += LANES)
        count -= load(r->maxima + j) >= least;
    int32_t total = 0;
    for (int i = 0; i < LANES; i++)
        total += count[i];
    return total;
}

/* A logit that `wanted` maxima reach, and few more; minus infinity if fewer are numbers. */
static float threshold(const ranking *r, int32_t wanted) {
    int64_t low = order_of(-FLT_MAX), high = (int64_t)order_of(r->top) + 1;
    if (count_maxima(r, -FLT_MAX) < wanted)
        return -INFINITY;
    while (high - low > 1) { /* at least `wanted` reach low, fewer reach high */
        int64_t middle = low + (high - low) / 2;
        int32_t reached = count_maxima(r, float_at((int32_t)middle));
        if (reached >= wanted)
            low = middle;
        else
            high = middle;
        if (reached >= wanted && reached <= wanted + wanted / 8)
            break;
    }
    return float_at((int32_t)low);
}

/* Least significant digit first, so that ties stay in the order of their ids. */
static void sort_keys(uint64_t *keys, uint64_t *spare, int32_t count) {
    for (int shift = 32; shift < 64; shift += 8) {
        int32_t start[257] = {0};
        for (int32_t i = 0; i < count; i++)
            start[(keys[i] >> shift & 255) + 1]++;
        for (int digit = 0; digit < 255; digit++)
            start[digit + 1] += start[digit];
        for (int32_t i = 0; i < count; i++)
            spare[start[keys[i] >> shift & 255]++] = keys[i];
        uint64_t *sorted = spare;
        spare = keys;
        keys = sorted;
    }
}

/* Keys of the logits of one span that are not less than `least` nor further away than `furthest`; 0: no room. */
static int list_span(ranking *r, int32_t start, float least, float furthest) {
    int32_t end = start + STRETCH * LANES < r->vocabulary ? start + STRETCH * LANES : r->vocabulary;
    for (int32_t j = start; j < end; j += LANES) {
        unsigned found = lanes_where(read_logits(r, j) >= least);
        for (; found; found &= found - 1) {
            int32_t token = j + __builtin_ctz(found);
            float distance = (r->top - r->logits[token]) / r->temperature;
            if (distance > furthest)
                continue;
            if (r->num_listed == LISTED)
                return 0;
            r->keys[r->num_listed++] = (uint64_t)bits_of(distance) << 32 | (uint32_t)token;
        }
    }
    return 1;
}

/* With more, some maxima stand for many tokens that are not much smaller. */
static int32_t most_wanted(const ranking *r) {
    return r->num_maxima / 4 * 3;
}

/* Fills the list with at least the first `wanted` ranks, and few more. Returns 0 if it cannot. */
static int make_list(ranking *r, int32_t wanted) {
    if (wanted > most_wanted(r) && r->vocabulary > LISTED)
        return 0;
    float least = r->vocabulary <= LISTED ? -INFINITY : threshold(r, wanted);
    float furthest = (r->top - least) / r->temperature;
    r->is_complete = least == -INFINITY;
    r->num_listed = 0;
    least = fmaxf(least_logit(r, furthest), -FLT_MAX); /* logits may differ where distances do not */
    for (int32_t i = 0; i < r->num_maxima; i += LANES)
        if (lanes_where(load(r->maxima + i) >= least) && !list_span(r, i * STRETCH, least, furthest))
            return 0;
    sort_keys(r->keys, r->spare, r->num_listed);
    for (int32_t i = 0; i < r->num_listed; i += LANES) {
        float distance[LANES];
        for (int k = 0; k < LANES; k++)
            distance[k] = i + k < r->num_listed ? float_of((uint32_t)(r->keys[i + k] >> 32)) : INFINITY;
        store(r->weight + i, weight_of(load(distance)));
        for (int k = 0; k < LANES; k += LANES / 2) {
            masses m = half_of_masses(r->weight + i + k);
            memcpy(r->mass + i + k, &m, sizeof m);
        }
    }
    return 1;
}

/* Lanes of the tokens from j on whose distance has bits from `first` to `last`; `logits` are theirs. */
INLINE unsigned lanes_between(const ranking *r, int32_t j, floats logits, uint32_t first, uint32_t last) {
    words bits = (words)distance_of(r, logits);
    unsigned all = r->vocabulary - j < LANES ? (1u << (r->vocabulary - j)) - 1 : ~0u;
    return lanes_where((ints)(bits >= first) & (ints)(bits <= last)) & all;
}

/* Sorts the tokens whose distance begins with `prefix` into bins, by the `width` bits from `shift` on. */
static void fill_bins(const ranking *r, uint32_t prefix, int shift, int width, bin *bins) {
    uint32_t rest = (1u << (shift + width)) - 1, first = prefix << (shift + width), last = first | rest;
    float least = least_logit(r, float_of(last)), most = most_logit(r, float_of(first));
    memset(bins, 0, sizeof(bin) << width);
    for (int32_t j = 0; j < r->vocabulary; j += LANES) {
        floats logits = read_logits(r, j);
        if (!lanes_where(~((logits < least) | (logits > most))))
            continue;
        unsigned found = lanes_between(r, j, logits, first, last);
        floats distance = distance_of(r, logits);
        float weight[LANES];
        uint64_t mass[LANES];
        uint32_t digit[LANES];
        words digits = ((words)distance & rest) >> shift;
        memcpy(digit, &digits, sizeof digit);
        store(weight, weight_of(distance));
        for (int k = 0; k < LANES; k += LANES / 2) {
            masses m = half_of_masses(weight + k);
            memcpy(mass + k, &m, sizeof m);
        }
        if (found == (1u << LANES) - 1) /* mostly so in the first bins */
            for (int k = 0; k < LANES; k++)
                bins[digit[k]] = (bin){bins[digit[k]].count + 1, bins[digit[k]].mass + mass[k]};
        else
            for (; found; found &= found - 1) {
                int k = __builtin_ctz(found);
                bins[digit[k]] = (bin){bins[digit[k]].count + 1, bins[digit[k]].mass + mass[k]};
            }
    }
}

/* The token at this distance that has `before` others like it at lower ids. */
static int32_t find_tie(const ranking *r, uint32_t distance, uint64_t before) {
    float least = least_logit(r, float_of(distance)), most = most_logit(r, float_of(distance));
    for (int32_t j = 0; j < r->vocabulary; j += LANES) {
        floats logits = read_logits(r, j);
        if (!lanes_where(~((logits < least) | (logits > most))))
            continue;
        unsigned found = lanes_between(r, j, logits, distance, distance);
        for (; found; found &= found - 1)
            if (before-- == 0)
                return j + __builtin_ctz(found);
    }
    return 0;
}

/* Goes from bin to bin until the rank or the mass is reached; where that bin begins is added to `before`. */
static uint32_t walk_bins(const bin *bins, int width, standing *before, uint64_t rank, uint64_t mass) {
    uint32_t digit = 0;
    while (digit < (1u << width) - 1 && before->rank + bins[digit].count < rank &&
           before->mass + bins[digit].mass < mass) {
        before->rank += bins[digit].count;
        before->mass += bins[digit].mass;
        digit++;
    }
    return digit;
}

static standing find_in_bins(ranking *r, uint64_t rank, uint64_t mass) {
    standing at = {0};
    uint32_t distance = walk_bins(r->bins, UPPER, &at, rank, mass), last = 0;
    for (int shift = LOWER; shift >= 0; shift -= LOWER) {
        fill_bins(r, distance, shift, LOWER, r->split);
        last = walk_bins(r->split, LOWER, &at, rank, mass);
        distance = distance << LOWER | last;
    }
    /* What is left are ties. */
    uint64_t each = r->split[last].mass / r->split[last].count;
    uint64_t ties = mass == NO_LIMIT ? rank - at.rank : (mass - at.mass + each - 1) / each;
    return (standing){at.rank + ties, at.mass + ties * each, find_tie(r, distance, ties - 1)};
}

static standing find_in_list(ranking *r, uint64_t rank, uint64_t mass) {
    standing at = {0};
    int32_t i = 0;
    for (; i < r->num_listed && at.rank < rank && at.mass < mass; i++) {
        at.rank++;
        at.mass += (uint64_t)r->mass[i];
    }
    at.token = (int32_t)(uint32_t)r->keys[i - 1];
    r->is_lost |= !r->is_complete && at.rank < rank && at.mass < mass;
    return at;
}

/* The first place that has this rank or this mass; both are at least 1, one of them is NO_LIMIT. */
static standing find(ranking *r, uint64_t rank, uint64_t mass) {
    return r->uses_list ? find_in_list(r, rank, mass) : find_in_bins(r, rank, mass);
}

#endif

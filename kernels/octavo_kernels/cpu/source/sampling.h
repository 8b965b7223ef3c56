/* Choosing the next token: penalties, temperature, top-k, top-p, min-p, renormalise, draw by inverse CDF.
 *
 * A filter keeps the first so many ranks. A thread takes one sample at a time, so that nothing depends on the others.
 * Nothing is drawn from a row with a NaN or an infinity in it, nor from one of minus infinities only.
 */
#include "philox.h"
#include "ranking.h"

enum { PURPOSE_TOKEN = 0, NO_TOKEN = -1 };

/* What a thread's scratch holds. */
typedef struct {
    _Alignas(64) float logits[MAX_VOCABULARY]; /* after penalties: others may read the row */
    union {
        int32_t times[MAX_VOCABULARY]; /* how often the answer says a token; only those of the history are set */
        ranking ranking;
    };
} sample_scratch;

_Static_assert(sizeof(sample_scratch) <= OCTAVO_SCRATCH_BYTES, "a sample fits the scratch of a thread");

/* Keeps the compiler from fusing a product with the sum after it: all variants round as the reference does. */
INLINE float rounded(float x) {
    volatile float kept = x;
    return kept;
}

/* Repetition counts prompt and answer; presence and frequency count the answer only. */
static void penalise(float *logits, const octavo_sampling *s, int32_t slot, int32_t *times) {
    const int32_t *history = s->history + slot * s->history_width;
    int32_t length = s->length[slot];
    for (int32_t i = 0; i < length; i++)
        times[history[i]] = 0;
    for (int32_t i = s->num_prompt[slot]; i < length; i++)
        times[history[i]]++;
    for (int32_t i = 0; i < length; i++) {
        int32_t token = history[i], said = times[token];
        if (said < 0)
            continue;
        float logit = logits[token], repetition = s->repetition_penalty[slot];
        logit = rounded(logit > 0 ? logit / repetition : logit * repetition);
        logit -= said ? s->presence_penalty[slot] : 0;
        logits[token] = logit - rounded(s->frequency_penalty[slot] * (float)said);
        times[token] = -1; /* done */
    }
}

static int has_penalty(const octavo_sampling *s, int32_t slot) {
    return s->repetition_penalty[slot] != 1 || s->presence_penalty[slot] != 0 || s->frequency_penalty[slot] != 0;
}

static uint64_t mass_of_row(ranking *r) {
    masses total = {0};
    for (int32_t j = 0; j < r->vocabulary && !r->row_mass; j += LANES) {
        float weight[LANES];
        store(weight, weight_of(distance_of(r, read_logits(r, j))));
        total += half_of_masses(weight) + half_of_masses(weight + LANES / 2);
    }
    for (int i = 0; i < LANES / 2; i++)
        r->row_mass += (uint64_t)total[i];
    return r->row_mass;
}

static uint64_t mass_of(ranking *r, standing kept) {
    return kept.mass ? kept.mass : mass_of_row(r);
}

/* How many of the first `most` ranks have a weight of at least `least`, when the largest has 1. */
static uint64_t count_likely(ranking *r, float least, uint64_t most) {
    uint64_t count = 0;
    if (!r->uses_list) {
        for (int32_t j = 0; j < r->vocabulary; j += LANES)
            count += (uint64_t)__builtin_popcount(lanes_where(weight_of(distance_of(r, read_logits(r, j))) >= least));
        return count < most ? count : most;
    }
    uint64_t listed = (uint64_t)r->num_listed;
    while (count < most && count < listed && r->weight[count] >= least)
        count++;
    r->is_lost |= !r->is_complete && count == listed && count < most;
    return count;
}

static int32_t draw(ranking *r, const octavo_sampling *s, int32_t slot) {
    float top_p = s->top_p[slot], min_p = s->min_p[slot];
    int32_t top_k = s->top_k[slot];
    float u = uniform((uint32_t)s->length[slot], (uint32_t)s->branch[slot], PURPOSE_TOKEN, s->seed[slot]);
    standing kept = {.rank = (uint64_t)r->vocabulary}; /* the mass is summed where it is asked for */
    if (top_k > 0 && top_k < r->vocabulary)
        kept = find(r, (uint64_t)top_k, NO_LIMIT);
    if (top_p < 1)
        kept = find(r, NO_LIMIT, (uint64_t)fmax(1, ceil((double)top_p * (double)mass_of(r, kept))));
    if (min_p > 0) {
        uint64_t likely = count_likely(r, min_p, kept.rank);
        if (likely < kept.rank)
            kept = find(r, likely ? likely : 1, NO_LIMIT);
    }
    return find(r, NO_LIMIT, (uint64_t)((double)u * (double)mass_of(r, kept)) + 1).token;
}

static int32_t draw_by_rank(ranking *r, const octavo_sampling *s, int32_t slot) {
    int32_t top_k = s->top_k[slot], wanted = top_k > 0 && top_k < WANTED ? top_k : WANTED;
    r->temperature = s->temperature[slot];
    r->row_mass = 0;
    r->uses_list = 1;
    for (wanted = wanted < most_wanted(r) ? wanted : most_wanted(r); make_list(r, wanted); wanted *= 4) {
        r->is_lost = 0;
        int32_t token = draw(r, s, slot);
        if (!r->is_lost)
            return token;
    }
    r->uses_list = 0;
    fill_bins(r, 0, 2 * LOWER, UPPER, r->bins);
    return draw(r, s, slot);
}

static int32_t next_token(const octavo_sample *a, int64_t sample, sample_scratch *scratch) {
    const octavo_sampling *s = a->sampling;
    int32_t slot = a->step->sample_slot[sample];
    float *logits = (float *)row_of(&a->logits, a->step->sample_row[sample]);
    if (has_penalty(s, slot)) {
        logits = memcpy(scratch->logits, logits, sizeof(float) * (size_t)a->logits.width);
        penalise(logits, s, slot, scratch->times);
    }
    ranking *r = &scratch->ranking;
    r->logits = logits;
    r->vocabulary = a->logits.width;
    if (!survey(r))
        return NO_TOKEN;
    if (!(s->temperature[slot] > 0))
        return find_top(r);
    return draw_by_rank(r, s, slot);
}

/* Puts a token that was drawn at the end of its slot's history, where there is room. */
static void remember(const octavo_sample *a, int64_t sample, int32_t token) {
    const octavo_sampling *s = a->sampling;
    int32_t slot = a->step->sample_slot[sample];
    if (token != NO_TOKEN && s->length[slot] < s->history_width)
        s->history[slot * s->history_width + s->length[slot]] = token;
}

static void sample(const void *arguments, octavo_thread *thread) {
    const octavo_sample *a = arguments;
    for (int64_t i; (i = octavo_next(thread)) < *a->step->num_samples;)
        remember(a, i, a->out[i] = next_token(a, i, (sample_scratch *)thread->scratch));
}

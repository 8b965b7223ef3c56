/* Log-probabilities of the tokens that came, and of the most likely ones. */

/* Lists the first `num_best` ranks or, where that has no room, bins all. Returns how many there are. */
static int32_t rank_best(ranking *r, int32_t num_best) {
    int32_t most = most_wanted(r);
    int has_list = make_list(r, num_best < most ? num_best : most);
    r->uses_list = has_list && (r->is_complete || r->num_listed >= num_best);
    if (r->uses_list)
        return num_best < r->num_listed ? num_best : r->num_listed;
    fill_bins(r, 0, 2 * LOWER, UPPER, r->bins);
    return num_best < r->vocabulary ? num_best : r->vocabulary;
}

static void list_logprobs(const octavo_logprobs *a, int32_t token, ranking *r, float *values, int32_t *ids) {
    r->vocabulary = a->logits.width;
    r->temperature = 1;
    r->row_mass = 0;
    if (!survey(r))
        return;
    double log_total = log((double)mass_of_row(r) * 0x1p-44);
    int32_t num_ranks = rank_best(r, a->num_best);
    for (int32_t i = 0; i <= num_ranks; i++) {
        int32_t one = i ? find(r, (uint64_t)i, NO_LIMIT).token : token;
        if (r->logits[one] == -INFINITY)
            break;
        ids[i] = one;
        values[i] = (float)((double)r->logits[one] - (double)r->top - log_total);
    }
}

static void logprobs(const void *arguments, octavo_thread *thread) {
    const octavo_logprobs *a = arguments;
    const octavo_step *step = a->step;
    ranking *r = &((sample_scratch *)thread->scratch)->ranking;
    for (int64_t i; (i = octavo_next(thread)) < *step->num_scores;) {
        float *values = a->values + i * (1 + a->num_best);
        int32_t *ids = a->ids + i * (1 + a->num_best);
        for (int32_t j = 0; j <= a->num_best; j++) {
            values[j] = -INFINITY;
            ids[j] = NO_TOKEN;
        }
        const int32_t *history = a->sampling->history + step->score_slot[i] * a->sampling->history_width;
        r->logits = (const float *)row_of(&a->logits, step->score_row[i]);
        list_logprobs(a, history[step->score_position[i]], r, values, ids);
    }
}

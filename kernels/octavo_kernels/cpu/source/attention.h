/* Paged attention. A row's context is cut into spans at fixed positions. Each is summed on its own, block by block, and then
 * they are joined in order, so that a row's bits do not depend on who computes its spans, nor on the rows beside it. */

#include "cache_block.h"
#include "attention_vector.h"
#include "softmax.h"
#if defined(__AMX_TILE__)
#include "attention_tile.h"
#include "attention_bytes.h"
#endif
#include "attention_task.h"
#include "attention_room.h"

/* Up to 16 rows of queries of a task. */
typedef struct {
    const char *queries;
    const float *scale; /* of split queries */
    const int32_t *seen;
    band_sums sums;
    int32_t rows;
    int32_t window;
} query_band;

INLINE void score(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, int size, product_rows p) {
#if defined(__AVX512BF16__)
    if (size == 2)
        return score_bfloat16(b, sheets, rows, width, p);
#endif
    (void)size;
    score_float32(b, sheets, rows, width, p);
}

INLINE void mix(const cache_block *b, int32_t sheets, int32_t rows, int32_t width, int size, product_rows p) {
#if defined(__AVX512BF16__)
    if (size == 2)
        return mix_bfloat16(b, sheets, rows, width, p);
#endif
    (void)size;
    mix_float32(b, sheets, rows, width, p);
}

/* Scores of a band, times the scales of K. */
INLINE void score_band(const attention_room *room, const cache_block *b, int32_t sheets, const query_band *q, const band_scores *s,
                       int type) {
    int size = product_size(type);
    product_rows p = {q->queries, query_bytes(room->width, size), s->scores, KV_BLOCK};
#if defined(__AMX_TILE__)
    if (size == 1)
        return score_bytes(b, sheets, q->rows, room->width, q->scale, room->sums, p);
#endif
    score(b, sheets, q->rows, room->width, size, p);
    if (type == OCTAVO_INT8)
        scale_scores(s);
}

/* Adds weighted values to the sums of a band. */
INLINE void mix_band(const attention_room *room, const cache_block *b, int32_t sheets, const query_band *q, const band_scores *s,
                     int type) {
    int size = product_size(type);
    product_rows p = {s->weights, KV_BLOCK * size, q->sums.mixed, room->width};
#if defined(__AMX_TILE__)
    if (size == 1)
        return mix_bytes(b, s, room->width, room->sums, q->sums.mixed);
#endif
    mix(b, sheets, q->rows, room->width, size, p);
}

/* Adds a block that begins at `start` to the sums of a band. */
INLINE void fold_block(const attention_room *room, const cache_block *b, int32_t start, const query_band *q, int type) {
    int32_t most = q->seen[q->rows - 1] - start;
    if (most <= 0 || start + KV_BLOCK <= q->seen[0] - q->window)
        return;
    int32_t sheets = most < b->sheets * SHEET ? (most + SHEET - 1) / SHEET : b->sheets;
    band_scores s = {room->scores, room->weights, q->rows, (sheets + 1) / 2 * 2 * SHEET, room->scale, b->key_scale, b->value_scale,
                     room->weight_scale};
    score_band(room, b, sheets, q, &s, type);
    if (room->cap > 0)
        cap_scores(&s, room->cap);
    if (q->seen[0] - start < s.columns)
        hide_future(&s, q->seen, start);
    if (start < q->seen[q->rows - 1] - q->window)
        hide_past(&s, q->seen, q->window, start);
    weigh(&s, &q->sums, room->width, type);
    mix_band(room, b, sheets, q, &s, type);
}

/* Adds a block to the sums of all rows of a task. */
INLINE void fold_task(const attention_room *room, const cache_block *b, int32_t start, const attention_task *t, int type,
                      float *sums) {
    int32_t bands = bands_of(t);
    for (int32_t i = 0; i < bands; i++) {
        query_band q = {room->queries + i * BAND * query_bytes(room->width, product_size(type)), room->query_scale + i * BAND,
                        room->seen + i * BAND, sums_of(sums, room->width, i),
                        rows_of_band(t, i), t->window};
        fold_block(room, b, start, &q, type);
    }
}

/* Sums of one span for all rows of a task. Then `next` will be read, if that is not null, from `next_start` on. */
INLINE void sum_span_of(const attention_task *t, int32_t span, const kv_head *next, int32_t next_start, int type,
                     const attention_room *room, float *sums) {
    int32_t last = seen_by(t, t->rows - 1), end = last - span * SPAN < SPAN ? last : (span + 1) * SPAN;
    int32_t first = first_seen(t), start = start_of(t, span);
    places at = find_places(&t->head, start);
    clear_sums(sums, room->width, bands_of(t));
    for (; start < end; start += KV_BLOCK) {
        cache_block b = {.key_scale = room->key_scale, .value_scale = room->value_scale, .is_read_once = t->rows <= BAND};
        places coming = start + KV_BLOCK < end ? find_places(&t->head, start + KV_BLOCK)
                        : next                 ? find_places(next, next_start)
                                               : NOWHERE;
        read_block(&t->head, start, &at, &coming, product_size(type), &room->block, &b);
        if (start < first)
            silence_past(&b, first - start, room->width, product_size(type), &room->block);
        fold_task(room, &b, start, t, type, sums);
        at = coming;
    }
}

#define SUM_SPAN(name, type)                                                                                                     \
    static void name(const attention_task *t, int32_t span, const kv_head *next, int32_t next_start, const attention_room *room, \
                     float *sums) {                                                                                              \
        sum_span_of(t, span, next, next_start, type, room, sums);                                                                \
    }

SUM_SPAN(sum_span_float32, OCTAVO_FLOAT32)
SUM_SPAN(sum_span_bfloat16, OCTAVO_BFLOAT16)
SUM_SPAN(sum_span_float16, OCTAVO_FLOAT16)
SUM_SPAN(sum_span_int8, OCTAVO_INT8)

static void sum_span(const attention_task *t, int32_t span, const kv_head *next, int32_t next_start, const attention_room *room,
                     float *sums) {
    switch (t->head.geometry->type) {
    case OCTAVO_FLOAT32:
        return sum_span_float32(t, span, next, next_start, room, sums);
    case OCTAVO_BFLOAT16:
        return sum_span_bfloat16(t, span, next, next_start, room, sums);
    case OCTAVO_FLOAT16:
        return sum_span_float16(t, span, next, next_start, room, sums);
    default:
        return sum_span_int8(t, span, next, next_start, room, sums);
    }
}

/* One task after the other, each by one thread. The next is known early, so that its pages can be prefetched. */
static void attend_alone(const octavo_attention *a, octavo_thread *thread) {
    attention_room room = room_in(thread->scratch, a->geometry->head_dim, a->softcap);
    float *whole = room.parts, *part = room.parts + TASK_ROWS / BAND * sums_size(room.width);
    task_cursor cursor = begin_tasks(a);
    attention_task t, coming;
    for (int more = find_task(&cursor, octavo_next(thread), &t), then; more; more = then, t = coming) {
        then = find_task(&cursor, octavo_next(thread), &coming);
        read_queries(a, &t, product_size(a->geometry->type), &room);
        for (int32_t first = first_span(&t), end = end_span(&t), span = first; span < end; span++) {
            const kv_head *next = span + 1 < end ? &t.head : then ? &coming.head : NULL;
            int32_t next_start = span + 1 < end ? (span + 1) * SPAN : then ? start_of(&coming, first_span(&coming)) : 0;
            sum_span(&t, span, next, next_start, &room, span > first ? part : whole);
            if (span > first)
                join(whole, part, room.width, bands_of(&t));
        }
        write_results(a, &t, whole, room.width);
    }
}

/* Where the sums of spans lie that all threads work on together: span i of the step at thread i % team. */
typedef struct {
    const octavo_thread *thread;
    int64_t size; /* floats */
    int32_t head_dim;
} shared_parts;

INLINE float *part_at(const shared_parts *p, int64_t i) {
    int32_t team = octavo_team_size(p->thread);
    return room_in(octavo_scratch(p->thread, (int32_t)(i % team)), p->head_dim, 0).parts + i / team * p->size;
}

static void sum_own_spans(const octavo_attention *a, const attention_task *t, int64_t begin, const shared_parts *parts) {
    int32_t team = octavo_team_size(parts->thread), first = first_span(t), spans = spans_of(t);
    int32_t i = (int32_t)((parts->thread->index + team - begin % team) % team);
    attention_room room = room_in(parts->thread->scratch, parts->head_dim, a->softcap);
    if (i < spans)
        read_queries(a, t, product_size(a->geometry->type), &room);
    for (; i < spans; i += team)
        sum_span(t, first + i, i + team < spans ? &t->head : NULL, (first + i + team) * SPAN, &room, part_at(parts, begin + i));
}

static void join_spans(const octavo_attention *a, const attention_task *t, int64_t begin, const shared_parts *parts) {
    float *whole = part_at(parts, begin);
    int32_t width = padded_width(parts->head_dim);
    for (int32_t i = 1; i < spans_of(t); i++)
        join(whole, part_at(parts, begin + i), width, bands_of(t));
    write_results(a, t, whole, width);
}

/* Few tasks: their spans are shared out. */
static void attend_together(const octavo_attention *a, octavo_thread *thread, const attention_load *load) {
    int32_t dim = a->geometry->head_dim;
    shared_parts parts = {thread, load->bands * sums_size(padded_width(dim)), dim};
    attention_task t;
    task_cursor cursor = begin_tasks(a);
    for (int64_t i = 0, begin = 0; find_task(&cursor, i, &t); i++, begin += spans_of(&t))
        sum_own_spans(a, &t, begin, &parts);
    octavo_barrier(thread);
    cursor = begin_tasks(a);
    for (int64_t i = 0, begin = 0; find_task(&cursor, i, &t); i++, begin += spans_of(&t))
        if (i % octavo_team_size(thread) == thread->index)
            join_spans(a, &t, begin, &parts);
}

/* Whether there are too few tasks for all threads to be busy to the end, and room for the sums of their spans. */
static int should_share(const octavo_attention *a, const octavo_thread *thread, attention_load *load) {
    int64_t team = octavo_team_size(thread), width = padded_width(a->geometry->head_dim);
    if (team == 1 || !measure_load(a, 4 * team, load))
        return 0;
    char *parts = (char *)room_in(thread->scratch, a->geometry->head_dim, 0).parts;
    int64_t room = thread->scratch + OCTAVO_SCRATCH_BYTES - parts, part = load->bands * sums_size((int32_t)width) * 4;
    return (load->spans + team - 1) / team * part <= room && load->spans > load->tasks;
}

static void attention(const void *arguments, octavo_thread *thread) {
    const octavo_attention *a = arguments;
    attention_load load;
#if defined(__AMX_TILE__)
    if (product_size(a->geometry->type) == 1)
        shape_tiles_for_bytes(padded_width(a->geometry->head_dim));
    else
        shape_tiles_for_bfloat16();
#endif
    if (should_share(a, thread, &load))
        attend_together(a, thread, &load);
    else
        attend_alone(a, thread);
}

/* What there is to do in one attention: tasks of up to 96 rows of queries that share a KV head, long ones first. */

enum { TASK_ROWS = 96, SPAN = 512 };

/* Rows are (token, query head of the KV head), one after the other. */
typedef struct {
    kv_head head;
    int64_t token;    /* of the step, the first of the row */
    int64_t position; /* of that token */
    int32_t group;    /* query heads of a KV head */
    int32_t query_head;
    int32_t first;
    int32_t rows;
    int32_t window; /* positions that a row sees at most */
} attention_task;

/* Goes through the rows of a step, those with about the longest contexts first. */
typedef struct {
    const octavo_attention *a;
    int32_t level, lower; /* powers of two of lengths: that of this round, that of the next */
    int32_t row;
    int64_t begin, end; /* tasks of this row */
} task_cursor;

INLINE int32_t queries_of(const octavo_step *s, int32_t row) {
    return s->row_start[row + 1] - s->row_start[row];
}

INLINE int32_t level_of(const octavo_step *s, int32_t row) {
    return s->row_slot[row] < 0 || queries_of(s, row) < 1 ? -1 : 31 - __builtin_clz((unsigned)s->row_length[row]);
}

INLINE int64_t pieces_of(const octavo_attention *a, int32_t row) {
    int64_t rows = (int64_t)queries_of(a->step, row) * (a->heads / a->geometry->num_kv_heads);
    return (rows + TASK_ROWS - 1) / TASK_ROWS;
}

static task_cursor begin_tasks(const octavo_attention *a) {
    return (task_cursor){.a = a, .level = INT32_MAX, .lower = -1, .row = -1};
}

static int next_row(task_cursor *c) {
    const octavo_step *s = c->a->step;
    for (;;) {
        while (++c->row < *s->num_rows) {
            int32_t level = level_of(s, c->row);
            if (level == c->level)
                return 1;
            if (level < c->level && level > c->lower)
                c->lower = level;
        }
        if (c->lower < 0)
            return 0;
        c->level = c->lower;
        c->lower = c->row = -1;
    }
}

/* Task `index`, which is no less than at the last call. Zero if there are not so many. */
static int find_task(task_cursor *c, int64_t index, attention_task *t) {
    const octavo_attention *a = c->a;
    const octavo_step *s = a->step;
    const octavo_geometry *g = a->geometry;
    while (index >= c->end) {
        if (!next_row(c))
            return 0;
        c->begin = c->end;
        c->end += pieces_of(a, c->row) * g->num_kv_heads;
    }
    int64_t pieces = pieces_of(a, c->row), head = (index - c->begin) / pieces;
    int32_t piece = (int32_t)(pieces - 1 - (index - c->begin) % pieces), group = a->heads / g->num_kv_heads;
    int32_t queries = queries_of(s, c->row), left = queries * group - piece * TASK_ROWS;
    int64_t page_bytes = g->block_bytes * g->num_kv_heads * g->num_layers;
    const char *pool = (const char *)a->pool + (a->layer * g->num_kv_heads + head) * g->block_bytes;
    const int32_t *table = s->table + s->row_slot[c->row] * s->table_width;
    *t = (attention_task){.head = {g, pool, page_bytes, table, s->row_length[c->row]},
                          .token = s->row_start[c->row],
                          .position = s->row_length[c->row] - queries,
                          .group = group,
                          .query_head = (int32_t)head * group,
                          .first = piece * TASK_ROWS,
                          .rows = left < TASK_ROWS ? left : TASK_ROWS,
                          .window = a->window ? a->window : INT32_MAX};
    return 1;
}

/* Row `r` of a task sees positions before this one. */
INLINE int32_t seen_by(const attention_task *t, int32_t r) {
    return (int32_t)t->position + (t->first + r) / t->group + 1;
}

/* The first position that any row sees. */
INLINE int32_t first_seen(const attention_task *t) {
    int32_t first = seen_by(t, 0) - t->window;
    return first > 0 ? first : 0;
}

/* Spans that some row sees something of: from the first to before the end. */
INLINE int32_t first_span(const attention_task *t) {
    return first_seen(t) / SPAN;
}

INLINE int32_t end_span(const attention_task *t) {
    return (seen_by(t, t->rows - 1) + SPAN - 1) / SPAN;
}

INLINE int32_t spans_of(const attention_task *t) {
    return end_span(t) - first_span(t);
}

/* Where the first block of a span begins that some row sees something of. */
INLINE int32_t start_of(const attention_task *t, int32_t span) {
    int32_t first = first_seen(t) / KV_BLOCK * KV_BLOCK;
    return span * SPAN > first ? span * SPAN : first;
}

INLINE int32_t bands_of(const attention_task *t) {
    return (t->rows + BAND - 1) / BAND;
}

INLINE int32_t rows_of_band(const attention_task *t, int32_t band) {
    return t->rows - band * BAND < BAND ? t->rows - band * BAND : BAND;
}

typedef struct {
    int64_t tasks;
    int64_t spans;
    int32_t bands; /* of the largest task */
} attention_load;

/* Counts what there is to do; zero if there are `most` tasks or more. */
static int measure_load(const octavo_attention *a, int64_t most, attention_load *load) {
    task_cursor cursor = begin_tasks(a);
    attention_task t;
    *load = (attention_load){0, 0, 0};
    for (; load->tasks < most && find_task(&cursor, load->tasks, &t); load->tasks++) {
        load->spans += spans_of(&t);
        load->bands = bands_of(&t) > load->bands ? bands_of(&t) : load->bands;
    }
    return load->tasks < most;
}

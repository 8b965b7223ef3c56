/* out = x @ weight transposed + bias. Every output is summed over k in one fixed order, whatever rows are beside it.
 *
 * Rows of x are first brought to what the products want (staged), then each task multiplies some rows by one panel. */
#ifndef OCTAVO_LINEAR_H
#define OCTAVO_LINEAR_H

/* BLOCK rows make a tile of sums: a multiple of what each product takes at once. */
enum { PANEL = 32, GROUP = 32, BLOCK = 96, CHUNK = 3 * BLOCK };

/* Rows of x as a product reads them. Integers are x / scale; `sums` are of those of a group. */
typedef struct {
    const char *data;
    int64_t stride;
    const float *scale; /* INT8: [rows]; groups: [rows][groups] */
    const float *sums;  /* groups: scale times the sum of the integers [rows][groups] */
} staged;

INLINE int is_grouped(int32_t type) {
    return type == OCTAVO_INT4 || type == OCTAVO_INT8_GROUPS;
}

/* Elements of a row of the weight, padding included. */
INLINE int32_t padded_inputs(const octavo_weight *w) {
    int32_t step = w->type == OCTAVO_FLOAT32 ? 16 : w->type == OCTAVO_BFLOAT16 ? 32 : w->type == OCTAVO_INT8 ? 64 : GROUP;
    return (w->inputs + step - 1) / step * step;
}

INLINE int64_t panel_bytes(const octavo_weight *w) {
    int64_t elements = (int64_t)padded_inputs(w) * PANEL;
    return w->type == OCTAVO_FLOAT32 ? 4 * elements
           : w->type == OCTAVO_BFLOAT16 ? 2 * elements
           : w->type == OCTAVO_INT4     ? elements / 2
                                        : elements;
}

INLINE const char *panel_of(const octavo_weight *w, int64_t panel) {
    return (const char *)w->data + panel * panel_bytes(w);
}

#include "linear_stage.h"
#include "linear_vector.h"
#if defined(__AMX_TILE__)
#include "linear_tile.h"
#endif

/* tile [rows][PANEL] of `panel`, for rows from `first` on. The panel that is `coming`, if any, may be fetched meanwhile. */
static void multiply(const octavo_weight *w, const staged *x, int64_t panel, int64_t first, int32_t rows, float *tile,
                     const char *coming) {
#if defined(__AMX_TILE__)
    if (rows > FEW && !is_grouped(w->type) && w->type != OCTAVO_FLOAT32) {
        multiply_tiles(w, x, panel, first, rows, tile, coming);
        return;
    }
#endif
    multiply_vectors(w, x, panel, first, rows, tile, coming);
}

/* tile + bias to columns of out; there may be fewer than a panel has at the end. */
INLINE void write_columns(const octavo_weight *w, const octavo_matrix *out, int64_t panel, int64_t first, int32_t rows, float *tile,
                          int type, int columns) {
    int64_t column = panel * PANEL;
    const float *bias = w->bias ? w->bias + column : NULL;
    for (int32_t r = 0; r < rows; r++, tile += PANEL) {
        char *row = row_of(out, first + r);
        int32_t j = 0;
        for (; j + LANES <= columns; j += LANES)
            write_floats(row, type, column + j, bias ? load(tile + j) + load(bias + j) : load(tile + j));
        for (; j < columns; j++)
            write_float(row, type, column + j, bias ? tile[j] + bias[j] : tile[j]);
    }
}

static void write_tile(const octavo_weight *w, const octavo_matrix *out, int64_t panel, int64_t first, int32_t rows, float *tile) {
    int64_t columns = w->outputs - panel * PANEL;
    if (columns < PANEL)
        write_columns(w, out, panel, first, rows, tile, out->type, (int)columns);
    else if (out->type == OCTAVO_BFLOAT16)
        write_columns(w, out, panel, first, rows, tile, OCTAVO_BFLOAT16, PANEL);
    else
        write_columns(w, out, panel, first, rows, tile, OCTAVO_FLOAT32, PANEL);
}

/* Rows of one panel, block by block: task `i` of a phase that has `chunks` tasks a panel. */
typedef struct {
    int64_t panel, row, end;
} work;

INLINE int64_t panels_of(const octavo_weight *w) {
    return (w->outputs + PANEL - 1) / PANEL;
}

static int next_work(octavo_thread *thread, const octavo_weight *w, int64_t rows, work *found) {
    int64_t chunks = (rows + CHUNK - 1) / CHUNK, i = octavo_next_near(thread, panels_of(w) * chunks);
    if (i < 0)
        return 0;
    found->panel = i / chunks;
    found->row = i % chunks * CHUNK;
    found->end = found->row + CHUNK < rows ? found->row + CHUNK : rows;
    return 1;
}

static int32_t block_rows(const work *at) {
    return at->end - at->row < BLOCK ? (int32_t)(at->end - at->row) : BLOCK;
}

/* The first panel that this thread will read after this operation, or null. */
static const char *panel_after(const octavo_thread *thread) {
    for (const octavo_entry *e = thread->entry + 1; e < thread->end; e++) {
        const octavo_weight *w = e->operation == OCTAVO_LINEAR         ? ((const octavo_linear *)e->arguments)->weight
                                 : e->operation == OCTAVO_GATED_LINEAR ? ((const octavo_gated_linear *)e->arguments)->gate
                                                                       : NULL;
        if (w)
            return panel_of(w, octavo_first(thread, panels_of(w)));
    }
    return NULL;
}

/* What to fetch during the last block of some work, before `next` is done, if that is not null. */
static const char *panel_to_fetch(const octavo_thread *thread, const octavo_weight *w, const work *at, const work *next) {
    if (at->end - at->row > BLOCK || (next && next->panel == at->panel))
        return NULL;
    return next ? panel_of(w, next->panel) : panel_after(thread);
}

static void linear(const void *arguments, octavo_thread *thread) {
    const octavo_linear *a = arguments;
    const octavo_weight *w = a->weight;
    staged x = stage(&(stage_task){a->rows, &a->x, w, a->scratch}, thread);
    float *tile = (float *)thread->scratch;
    work at = {0}, next = {0};
    for (int more = next_work(thread, w, *a->rows, &at), then; more; more = then, at = next) {
        then = next_work(thread, w, *a->rows, &next);
        for (; at.row < at.end; at.row += BLOCK) {
            const char *coming = panel_to_fetch(thread, w, &at, then ? &next : NULL);
            multiply(w, &x, at.panel, at.row, block_rows(&at), tile, coming);
            write_tile(w, &a->out, at.panel, at.row, block_rows(&at), tile);
        }
    }
}

static void gated_linear(const void *arguments, octavo_thread *thread) {
    const octavo_gated_linear *a = arguments;
    staged x = stage(&(stage_task){a->rows, &a->x, a->gate, a->scratch}, thread);
    float *gate = (float *)thread->scratch, *up = gate + BLOCK * PANEL;
    work at = {0}, next = {0};
    for (int more = next_work(thread, a->gate, *a->rows, &at), then; more; more = then, at = next) {
        then = next_work(thread, a->gate, *a->rows, &next);
        for (; at.row < at.end; at.row += BLOCK) {
            int32_t rows = block_rows(&at);
            const char *coming = panel_to_fetch(thread, a->gate, &at, then ? &next : NULL);
            multiply(a->gate, &x, at.panel, at.row, rows, gate, coming);
            multiply(a->up, &x, at.panel, at.row, rows, up, coming && then ? panel_of(a->up, next.panel) : NULL);
            for (int32_t j = 0; j < rows * PANEL; j += LANES)
                store(gate + j, silu(load(gate + j)) * load(up + j));
            write_tile(a->gate, &a->out, at.panel, at.row, rows, gate);
        }
    }
}

#include "pack.h"

#endif

/* The plain C interface of Octavo's CPU kernels.
 *
 * A tape is an array of (operation, arguments). `octavo_run` executes it with all threads of a team; everything that
 * changes from step to step, counts included, is read through pointers when an operation runs, so a tape is made once.
 * Formulas and shapes of the operations are in octavo_kernels/ops.py; this file says how they lie in memory.
 */
#ifndef OCTAVO_H
#define OCTAVO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { OCTAVO_FLOAT32, OCTAVO_BFLOAT16, OCTAVO_FLOAT16, OCTAVO_INT8, OCTAVO_INT4, OCTAVO_INT8_GROUPS } octavo_type;

/* Rows of activations; row i begins at data + i * stride bytes. type: FLOAT32 or BFLOAT16. */
typedef struct {
    void *data;
    int64_t stride;
    int32_t width;
    int32_t type;
} octavo_matrix;

/* A weight [outputs][inputs] in panels of 32 outputs; missing outputs and inputs are zero.
 * FLOAT32, BFLOAT16, INT8: with g = 4 / sizeof(element), inputs padded to a multiple of 16 g, element (n, k) lies at
 *     [n / 32][k / g][n % 32][k % g]
 *   INT8: weight = data * scale[n], scale is float; sum[n] is the sum of data over k.
 * INT4, INT8_GROUPS: groups of 32 inputs, weight = u * scale[n][k / 32] + low[n][k / 32], u unsigned, scale and low float16
 *   at [n / 32][k / 32][n % 32]. INT8_GROUPS has no low: it is -128 * scale. Four neighbouring inputs are a quad of bytes:
 *     INT8_GROUPS [n / 32][k / 32][quad][n % 32][k % 4]
 *     INT4        [n / 32][k / 32][quad % 4][n % 32][k % 4], quad / 4 being the high nibble. */
typedef struct {
    const void *data;
    const void *scale;
    const void *low;
    const int32_t *sum;
    const float *bias; /* [outputs] or null */
    int32_t outputs;
    int32_t inputs;
    int32_t type;
} octavo_weight;

/* A page is [layer][kv_head][block]; a block is K, then V, then for INT8 bfloat16 scales of K and of V, [token] each.
 * With g = 4 / sizeof(element): if page_size is a multiple of 16,
 *     K is [token / 16][dimension / g][token % 16][dimension % g],
 *     V is [token / g][dimension][token % g];
 * otherwise both are [token][dimension]. */
typedef struct {
    int64_t block_bytes;
    int32_t page_size;
    int32_t num_layers;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t type;
} octavo_geometry;

/* See ops.Step; all arrays are those of the step, which lives as long as the tape. */
typedef struct {
    const int32_t *num_tokens;
    const int32_t *num_rows;
    const int32_t *num_head_rows;
    const int32_t *num_samples;
    int32_t *token;
    const int32_t *position;
    const int64_t *kv_index;
    const int32_t *row_slot;
    const int32_t *row_start;
    const int32_t *row_length;
    const int32_t *table;
    int64_t table_width;
    const int32_t *head_token;
    const int32_t *sample_row;
    const int32_t *sample_slot;
    const int32_t *num_biased;
    const int32_t *bias_row;
    const int32_t *bias_slot;
    const int32_t *num_scores;
    const int32_t *score_row;
    const int32_t *score_slot;
    const int32_t *score_position;
} octavo_step;

/* See ops.BiasLogits. */
typedef struct {
    int32_t token;
    float bias;
    int32_t until;
    int32_t context;
} octavo_bias;

/* See ops.Sampling. */
typedef struct {
    const float *temperature;
    const float *top_p;
    const float *min_p;
    const int32_t *top_k;
    const float *repetition_penalty;
    const float *presence_penalty;
    const float *frequency_penalty;
    const uint64_t *seed;
    const int32_t *branch;
    const int32_t *num_prompt;
    const int32_t *length;
    int32_t *history;
    const int32_t *num_biases;
    const octavo_bias *biases;
    int64_t history_width;
    int64_t most_biases; /* of a slot */
} octavo_sampling;

typedef enum {
    OCTAVO_TAKE_TOKENS,
    OCTAVO_TAKE_ROWS,
    OCTAVO_EMBED,
    OCTAVO_RMS_NORM,
    OCTAVO_LINEAR,
    OCTAVO_GATED_LINEAR,
    OCTAVO_ROPE_AND_WRITE,
    OCTAVO_ATTENTION,
    OCTAVO_SILU_MUL,
    OCTAVO_BIAS_LOGITS,
    OCTAVO_MASK_LOGITS,
    OCTAVO_SAMPLE,
    OCTAVO_LOGPROBS,
    OCTAVO_MOVE_PAGES,
    OCTAVO_ZERO_PAGES,
    OCTAVO_PACK,
    OCTAVO_NUM_OPERATIONS
} octavo_operation;

typedef struct { /* token[i] = history[slot of its row][position[i]] */
    const octavo_sampling *sampling;
    const octavo_step *step;
} octavo_take_tokens;

typedef struct { /* out[i] = source[index[i]] */
    const int32_t *rows;
    octavo_matrix source;
    const int32_t *index;
    octavo_matrix out;
} octavo_take_rows;

typedef struct { /* out[i] = row index[i] of a packed weight */
    const int32_t *rows;
    const octavo_weight *source;
    const int32_t *index;
    octavo_matrix out;
} octavo_embed;

typedef struct { /* x.data may be null */
    const int32_t *rows;
    octavo_matrix x;
    octavo_matrix residual;
    const float *weight;
    octavo_matrix out;
    float eps;
} octavo_rms_norm;

typedef struct { /* scratch: for every row of x that there may be, 4 bytes each padded input and 8 bytes each 32 of them */
    const int32_t *rows;
    octavo_matrix x;
    const octavo_weight *weight;
    octavo_matrix out;
    void *scratch;
} octavo_linear;

typedef struct { /* out = silu(x @ gate transposed) * (x @ up transposed); gate and up have one shape and type */
    const int32_t *rows;
    octavo_matrix x;
    const octavo_weight *gate;
    const octavo_weight *up;
    octavo_matrix out;
    void *scratch;
} octavo_gated_linear;

typedef struct { /* qkv: rows of [heads + 2 kv_heads][head_dim] */
    octavo_matrix qkv;
    const float *cos; /* [max_context][head_dim / 2] */
    const float *sin;
    void *pool;
    const octavo_geometry *geometry;
    const octavo_step *step;
    int32_t heads;
    int32_t layer;
} octavo_rope_and_write;

typedef struct {
    octavo_matrix qkv;
    const void *pool;
    const octavo_geometry *geometry;
    const octavo_step *step;
    octavo_matrix out; /* rows of [heads][head_dim] */
    int32_t heads;
    int32_t layer;
    int32_t window; /* positions that a query sees, its own included; 0: all */
    float softcap;  /* of scores; 0: none */
} octavo_attention;

typedef struct {
    const int32_t *rows;
    octavo_matrix gate_up; /* rows of [2][out.width] */
    octavo_matrix out;
} octavo_silu_mul;

typedef struct { /* logits of some rows become -inf, but for those tokens whose bit is set; see ops.MaskLogits */
    octavo_matrix logits; /* FLOAT32 */
    const int32_t *rows;
    const int32_t *row;
    const uint32_t *bits; /* [rows][words] */
    int64_t words;
} octavo_mask_logits;

typedef struct {
    octavo_matrix logits; /* FLOAT32 */
    const octavo_sampling *sampling;
    const octavo_step *step;
    octavo_matrix out; /* [biased] rows as long */
} octavo_bias_logits;

typedef struct {
    octavo_matrix logits; /* FLOAT32 */
    const octavo_sampling *sampling;
    const octavo_step *step;
    int32_t *out;
} octavo_sample;

typedef struct { /* values, ids [scores][1 + num_best]; see ops.Logprobs */
    octavo_matrix logits;
    const octavo_sampling *sampling;
    const octavo_step *step;
    float *values;
    int32_t *ids;
    int32_t num_best;
} octavo_logprobs;

typedef struct { /* all reads come before all writes where source and target are one pool */
    const void *source;
    const int64_t *source_ids;
    void *target;
    const int64_t *target_ids;
    void *staging; /* count pages when source is target, else null */
    int64_t count;
    int64_t page_bytes;
} octavo_move_pages;

typedef struct {
    void *pool;
    const int64_t *ids;
    int64_t count;
    int64_t page_bytes;
} octavo_zero_pages;

typedef struct { /* puts rows of float32 or of a GGUF type into the order of `weight`, whose memory is writable here */
    const void *rows;
    const octavo_weight *weight;
    int32_t source; /* an octavo_source */
} octavo_pack;

typedef enum { OCTAVO_FROM_FLOAT32, OCTAVO_FROM_Q4_0, OCTAVO_FROM_Q4_1, OCTAVO_FROM_Q8_0 } octavo_source;

typedef struct {
    int64_t operation;
    const void *arguments;
} octavo_entry;

typedef struct octavo_team octavo_team;

#pragma GCC visibility push(default)

/* Names of the variants that this processor runs, best first, separated by spaces. */
const char *octavo_variants(void);

/* `threads` counts the caller's own. Null if the variant does not run here or there is no memory or thread left. */
octavo_team *octavo_team_new(int32_t threads, const char *variant);
void octavo_team_free(octavo_team *team);

/* Executes a tape; one caller at a time. */
void octavo_run(octavo_team *team, const octavo_entry *tape, int64_t count);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif

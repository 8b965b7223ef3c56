/* All kernels of one variant. Compiled once for each instruction set, with VARIANT set to its name. */
#include "team.h"
#include "vector.h"

#include <math.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

#include "matrix.h"
#include "dense.h"
#include "linear.h"
#include "pages.h"
#include "attention.h"
#include "bias.h"
#include "masks.h"
#include "sampling.h"
#include "logprobs.h"

#if defined(__AMX_TILE__)
/* Tiles take denormal numbers for zero; so does all else here, or else a sum would depend on how it is computed. */
static unsigned flush_denormals(void) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    return before;
}

/* Tiles in use make the system save 8 KiB with each change of thread. */
static void restore(unsigned before) {
    _mm_setcsr(before);
    _tile_release();
}
#endif

extern const octavo_variant JOIN(octavo_variant_, VARIANT);

const octavo_variant JOIN(octavo_variant_, VARIANT) = {
    .name = TEXT(VARIANT),
    .kernels =
        {
            [OCTAVO_TAKE_TOKENS] = take_tokens,
            [OCTAVO_TAKE_ROWS] = take_rows,
            [OCTAVO_EMBED] = embed,
            [OCTAVO_RMS_NORM] = rms_norm,
            [OCTAVO_LINEAR] = linear,
            [OCTAVO_GATED_LINEAR] = gated_linear,
            [OCTAVO_ROPE_AND_WRITE] = rope_and_write,
            [OCTAVO_ATTENTION] = attention,
            [OCTAVO_SILU_MUL] = silu_mul,
            [OCTAVO_BIAS_LOGITS] = bias_logits,
            [OCTAVO_MASK_LOGITS] = mask_logits,
            [OCTAVO_SAMPLE] = sample,
            [OCTAVO_LOGPROBS] = logprobs,
            [OCTAVO_MOVE_PAGES] = move_pages,
            [OCTAVO_ZERO_PAGES] = zero_pages,
            [OCTAVO_PACK] = pack,
        },
#if defined(__AMX_TILE__)
    .enter = flush_denormals,
    .leave = restore,
#endif
};

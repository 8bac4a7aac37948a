/* Linears as their weights lie, and what becomes of a block's sums.

   Weights lie in blocks of 32 outputs: for each two inputs 16 outputs' pairs, then the other 16's. Missing outputs of
   the last block are zeros. */
#pragma once
#include "vectors.h"

#define BLOCK 32
#define AHEAD 8192 /* bytes; a shorter way leaves several rows waiting for the memory */

enum { AS_IS = -1, SILU = 0, GELU = 1 };

/* act AS_IS: num outputs. Else a block holds 16 gates and 16 values, and gives act(gate) * value, 16 outputs. k is
   even. bias: float32 in the blocks' order, or null.
   in_bytes: weights are of 8 bits (bytes.h). */
typedef struct {
    const bf16 *weights;
    const float *bias;
    int64_t num, k, in_bytes;
} Linear;

INLINE Floats activated(const int act, Floats x) {
    if (act == SILU) return times(x, sigmoid(x));
    /* gelu's tanh form: x * sigmoid(2 sqrt(2 / pi) inner) */
    Floats inner = fused(times(times(x, x), x), all(0.044715f), x);
    return times(x, sigmoid(times(inner, all(1.5957691216f))));
}

INLINE void store(bf16 *to, Floats v, int64_t num) {
    if (num >= LANES) narrow(to, v);
    else if (num > 0) narrow_some(to, v, (int)num);
}

INLINE void start(Floats *sums, int64_t rows, const float *bias) {
    for (int64_t i = 0; i < 2 * rows; i++) sums[i] = bias ? floats(bias + i % 2 * LANES) : zeros();
}

INLINE void finish(const Floats *sums, int64_t rows, const int act, bf16 *out, int64_t stride, int64_t num) {
    for (int64_t row = 0; row < rows; row++, sums += 2) {
        if (act == AS_IS) {
            store(out + row * stride, sums[0], num);
            store(out + row * stride + LANES, sums[1], num - LANES);
        } else {
            store(out + row * stride, times(activated(act, sums[0]), sums[1]), num);
        }
    }
}

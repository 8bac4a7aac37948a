/* x @ weight.T + bias for few rows. The weights are read from memory once, which is what a narrow step costs; every output of a row is one chain of
   additions over the inputs in their order, so its bits depend on that row alone: not on how many rows there are, on the row's place, nor on the threads.

   Weights lie in blocks of 32 outputs: for each two inputs 16 outputs' pairs, then the other 16's. Missing outputs of the last block are zeros. */
#pragma once
#include "vectors.h"

#define BLOCK 32
#define MOST_ROWS 12
#define AHEAD 8192 /* bytes; a shorter way leaves several rows waiting for the memory */

enum { AS_IS = -1, SILU = 0, GELU = 1 };

/* act AS_IS: num outputs. Else a block holds 16 gates and 16 values, and gives act(gate) * value, 16 outputs. k is even. bias: float32 in the blocks' order, or null. */
typedef struct {
    const bf16 *weights;
    const float *bias;
    int64_t num, k;
} Linear;

INLINE __m512 activated(const int act, __m512 x) {
    if (act == SILU) return _mm512_mul_ps(x, sigmoid(x));
    __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_mul_ps(x, x), x), all(0.044715f), x); /* gelu's tanh form: x * sigmoid(2 sqrt(2 / pi) inner) */
    return _mm512_mul_ps(x, sigmoid(_mm512_mul_ps(inner, all(1.5957691216f))));
}

INLINE void store(bf16 *to, __m512 v, int64_t num) {
    if (num >= LANES) narrow(to, v);
    else if (num > 0) _mm256_mask_storeu_epi16(to, (__mmask16)((1u << num) - 1), rounded(v));
}

/* One block for `rows` rows: registers hold all their sums. soon: what to ask the memory for meanwhile, two lines `apart` for each pair of inputs. */
INLINE void tile(const int rows, const int act, const bf16 *x, const bf16 *w, const char *soon, int64_t apart, const float *bias, int64_t k, bf16 *out, int64_t stride, int64_t num) {
    __m512 sum[MOST_ROWS][2];
    for (int row = 0; row < rows; row++) {
        sum[row][0] = bias ? _mm512_loadu_ps(bias) : _mm512_setzero_ps();
        sum[row][1] = bias ? _mm512_loadu_ps(bias + LANES) : _mm512_setzero_ps();
    }
    for (int64_t pair = 0; pair < k / 2; pair++, w += 2 * BLOCK, soon += 4 * BLOCK) {
        __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + BLOCK);
        _mm_prefetch(soon, _MM_HINT_T0);
        _mm_prefetch(soon + apart, _MM_HINT_T0);
        for (int row = 0; row < rows; row++) {
            int32_t both;
            memcpy(&both, x + row * k + 2 * pair, sizeof both);
            __m512i inputs = _mm512_set1_epi32(both);
            sum[row][0] = dot2(sum[row][0], first, inputs);
            sum[row][1] = dot2(sum[row][1], second, inputs);
        }
    }
    for (int row = 0; row < rows; row++) {
        if (act == AS_IS) {
            store(out + row * stride, sum[row][0], num);
            store(out + row * stride + LANES, sum[row][1], num - LANES);
        } else {
            store(out + row * stride, _mm512_mul_ps(activated(act, sum[row][0]), sum[row][1]), num);
        }
    }
}

#define TILE(n)                                                     \
    case n:                                                         \
        tile(n, act, x, w, soon, apart, bias, k, out, stride, num); \
        break;

/* Rows that are too many for the registers pass several times, and each of the first two passes asks for half of the next block. */
INLINE void block(const int act, const bf16 *x, int64_t rows, const bf16 *w, const float *bias, int64_t k, bf16 *out, int64_t stride, int64_t num) {
    const int64_t passes = (rows + MOST_ROWS - 1) / MOST_ROWS, apart = passes == 1 ? 64 : 0;
    for (int64_t tiles = passes; tiles > 0; tiles--) {
        const char *soon = (const char *)w + (passes == 1 ? AHEAD : 2 * BLOCK * k + tiles % 2 * 64);
        int64_t some = (rows + tiles - 1) / tiles;
        switch (some) { TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) }
        rows -= some, x += some * k, out += some * stride;
    }
}

INLINE void blocks(const int act, const Linear *linear, const bf16 *x, int64_t rows, bf16 *out, int64_t from, int64_t to) {
    int64_t each = act == AS_IS ? BLOCK : LANES, num = act == AS_IS ? linear->num : linear->num / 2;
    for (int64_t b = from; b < to; b++)
        block(act, x, rows, linear->weights + b * BLOCK * linear->k, linear->bias ? linear->bias + b * BLOCK : 0, linear->k, out + b * each, num, num - b * each);
}

/* Thread `id` of `threads`: its share of the outputs of x [rows, k] -> out [rows, num], or [rows, num / 2] of a gated one. */
static void multiply(const Linear *linear, int act, const bf16 *x, int64_t rows, bf16 *out, int id, int threads) {
    int64_t count = (linear->num + BLOCK - 1) / BLOCK, from = count * id / threads, to = count * (id + 1) / threads;
    if (act == SILU) blocks(SILU, linear, x, rows, out, from, to);
    else if (act == GELU) blocks(GELU, linear, x, rows, out, from, to);
    else blocks(AS_IS, linear, x, rows, out, from, to);
}

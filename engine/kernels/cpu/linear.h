/* x @ weight.T + bias for few rows. The weights are read from memory once, which is what a narrow step costs; every
   output of a row is one chain of additions over the inputs in their order, so its bits depend on that row alone: not
   on how many rows there are, on the row's place, nor on the threads. */
#pragma once
#include "amx.h"
#include "block.h"

/* Adds the products of `num` inputs with one half of a block or both, from w on, to the sums of some rows, which
   registers are to hold. soon: what to ask the memory for meanwhile, `step` bytes on for each two inputs; with both
   halves two lines, so far apart. */
INLINE void accumulate(const int rows, const int halves, const Input *x, int64_t k, const bf16 *w, int64_t num,
    const char *soon, int64_t step, int64_t apart, Floats *sums) {
    for (int64_t i = 0; i < num; i += 2, w += 2 * BLOCK, soon += step) {
        fetch(soon);
        if (halves == 2) fetch(soon + apart);
        add_products(rows, halves, x + i, k, w, sums);
    }
}

/* One block for rows whose sums with all of it fit the registers. */
INLINE void tile(const int rows, const int act, const Input *x, const bf16 *w, const char *soon, int64_t apart,
    const float *bias, int64_t k, bf16 *out, int64_t stride, int64_t num) {
    Floats sums[2 * WHOLE_ROWS];
    start(sums, rows, bias);
    accumulate(rows, 2, x, k, w, k, soon, 4 * BLOCK, apart, sums);
    finish(sums, rows, act, out, stride, num);
}

/* For more rows half a block at a time does. sums: their first ones of that half. */
INLINE void half_tile(const int rows, const Input *x, int64_t k, const bf16 *w, int64_t num, const char *soon,
    int64_t step, Floats *sums) {
    Floats its[2 * HALF_ROWS];
    for (int row = 0; row < rows; row++) its[2 * row] = sums[2 * row];
    accumulate(rows, 1, x, k, w, num, soon, step, 0, its);
    for (int row = 0; row < rows; row++) sums[2 * row] = its[2 * row];
}

#define HALF_TILE(n)                                                                                               \
    case n:                                                                                                        \
        half_tile(n, x + row * k + from, k, w + pass % 2 * BLOCK, num, soon, step, all_sums + 2 * row + pass % 2); \
        break;

/* One block for more rows than that, which pass over it in parts that stay in the nearest cache, while the next part
   comes. */
INLINE void tiles_in_parts(int64_t rows, const int act, const Input *x, const bf16 *w, const float *bias, int64_t k,
    bf16 *out, int64_t stride, int64_t num_out) {
    Floats all_sums[2 * MOST_ROWS];
    (void)x; /* where the registers hold every row, there is no case below */
    start(all_sums, rows, bias);
    const int64_t tiles = (rows + HALF_ROWS - 1) / HALF_ROWS, parts = (k + PART - 1) / PART, part =
        (k / parts + 2) & ~(int64_t)1, step = 2 * BLOCK / tiles;
    for (int64_t from = 0; from < k; from += part, w += part * BLOCK) {
        const int64_t num = k - from < part ? k - from : part;
        const char *soon = (const char *)(w + num * BLOCK);
        for (int64_t pass = 0; pass < 2 * tiles; pass++, soon += num / 2 * step) {
            const int64_t row = pass / 2 * rows / tiles, some = (pass / 2 + 1) * rows / tiles - row;
            switch (some) { EACH_OF_HALF_ROWS(HALF_TILE) }
        }
    }
    finish(all_sums, rows, act, out, stride, num_out);
}

#define TILE(n)                                                     \
    case n:                                                         \
        tile(n, act, x, w, soon, apart, bias, k, out, stride, num); \
        break;

/* Rows that are too many for the registers pass several times, and each of the first two passes asks for half of the
   next block. */
INLINE void block(const int act, const Input *x, int64_t rows, const bf16 *w, const float *bias, int64_t k, bf16 *out,
    int64_t stride, int64_t num) {
    const int64_t passes = (rows + MOST_ROWS - 1) / MOST_ROWS, apart = passes == 1 ? 64 : 0;
    for (int64_t left = passes; left > 0; left--) {
        const char *soon = (const char *)w + (passes == 1 ? AHEAD : 2 * BLOCK * k + left % 2 * 64);
        int64_t some = (rows + left - 1) / left;
        switch (some) {
            EACH_OF_WHOLE_ROWS(TILE)
        default:
            if (WHOLE_ROWS < MOST_ROWS) tiles_in_parts(some, act, x, w, bias, k, out, stride, num);
        }
        rows -= some, x += some * k, out += some * stride;
    }
}

INLINE void blocks(const int act, const Linear *linear, const Input *x, int64_t rows, bf16 *out, int64_t from,
    int64_t to) {
    int64_t each = act == AS_IS ? BLOCK : LANES, num = act == AS_IS ? linear->num : linear->num / 2;
    for (int64_t b = from; b < to; b++)
        block(act, x, rows, linear->weights + b * BLOCK * linear->k, linear->bias ? linear->bias + b * BLOCK : 0,
            linear->k, out + b * each, num, num - b * each);
}

/* Apart from `multiply`, whose room on the stack would cost it a register. */
static __attribute__((noinline)) void outputs(const Linear *linear, int act, const Input *x, int64_t rows, bf16 *out,
    int64_t from, int64_t to) {
    if (act == SILU) blocks(SILU, linear, x, rows, out, from, to);
    else if (act == GELU) blocks(GELU, linear, x, rows, out, from, to);
    else blocks(AS_IS, linear, x, rows, out, from, to);
}

/* Thread `id` of `threads`: its share of the outputs of x [rows, k] -> out [rows, num], or [rows, num / 2] of a gated
   one. */
static void multiply(const Linear *linear, int act, const bf16 *x, int64_t rows, bf16 *out, int id, int threads) {
    const int64_t count = (linear->num + BLOCK - 1) / BLOCK, from = count * id / threads, to =
        count * (id + 1) / threads, k = linear->k, num = act == AS_IS ? linear->num : linear->num / 2;
    if (MAY_USE_TILES) {
        tiled_outputs(linear, act, x, rows, out, from, to);
        return;
    }
    const int64_t most = !MOST_WIDENED || rows * k <= MOST_WIDENED ? rows : k < MOST_WIDENED ? MOST_WIDENED / k : 1;
    Input *room = MOST_WIDENED ? __builtin_alloca(sizeof *room * most * k) : 0;
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t some = rows - row < most ? rows - row : most;
        outputs(linear, act, as_inputs(x + row * k, some * k, room), some, out + row * num, from, to);
    }
}

/* Blocks of a linear by AMX, which multiplies 16 rows by 16 outputs over 32 inputs at once: up to 16 rows cost little
   more than one. A block is such tiles as it is: sixteen times two inputs of a half, a line of the cache apart.

   What is added to a row's sums, and in what order, is the same for any rows next to it (Intel's manual, TDPBF16PS). */
#pragma once
#include "block.h"
#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#define TILE_ROWS 16
#define TILE_INPUTS 32
/* Tiles: sums of both halves, rows, weights of both halves; and rows and weights of the last inputs, fewer than 32. */
#define SUMS_A 0
#define SUMS_B 1
#define ROWS 2
#define HALF_A 3
#define HALF_B 4
#define LAST_ROWS 5
#define LAST_A 6
#define LAST_B 7

/* Linux lends a process its tiles for the asking. */
static int may_use_tiles;
static __attribute__((constructor)) void ask_for_tiles(void) { may_use_tiles =
    !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */); }

/* This thread's tiles, for so many rows of k inputs. */
INLINE void shape_tiles(int64_t rows, int64_t k) {
    const int last = (int)(k % TILE_INPUTS);
    struct {
        uint8_t palette, start, unused[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int tile = 0; tile <= LAST_B; tile++) shapes.bytes[tile] = 64, shapes.rows[tile] = TILE_ROWS;
    shapes.rows[SUMS_A] = shapes.rows[SUMS_B] = shapes.rows[ROWS] = shapes.rows[LAST_ROWS] = (uint8_t)rows;
    if (last) shapes.bytes[LAST_ROWS] = (uint16_t)(2 * last), shapes.rows[LAST_A] = shapes.rows[LAST_B] = last / 2;
    _tile_loadconfig(&shapes);
}

#define ADD_PRODUCTS(rows, a, b)            \
    _tile_loadd(rows, x, stride);           \
    _tile_loadd(a, w, 4 * BLOCK);           \
    _tile_loadd(b, w + BLOCK, 4 * BLOCK);   \
    _tile_dpbf16ps(SUMS_A, rows, a);        \
    _tile_dpbf16ps(SUMS_B, rows, b)

/* The sums of at most 16 rows with a block. fetches: what comes after it is asked for meanwhile. */
INLINE void tiled_sums(const bf16 *x, const bf16 *w, const float *bias, int64_t k, int fetches, Floats *sums) {
    const int64_t stride = 2 * k;
    if (bias) {
        _tile_loadd(SUMS_A, bias, 0);
        _tile_loadd(SUMS_B, bias + LANES, 0);
    } else {
        _tile_zero(SUMS_A);
        _tile_zero(SUMS_B);
    }
    for (; k >= TILE_INPUTS; k -= TILE_INPUTS, x += TILE_INPUTS, w += TILE_INPUTS * BLOCK) {
        for (int line = 0; fetches && line < TILE_INPUTS; line++) fetch((const char *)w + AHEAD + 64 * line);
        ADD_PRODUCTS(ROWS, HALF_A, HALF_B);
    }
    if (k) {
        ADD_PRODUCTS(LAST_ROWS, LAST_A, LAST_B);
    }
    _tile_stored(SUMS_A, sums, 128);
    _tile_stored(SUMS_B, sums + 1, 128);
}

/* `outputs` of linear.h. */
static __attribute__((noinline)) void tiled_outputs(const Linear *linear, int act, const bf16 *x, int64_t rows,
    bf16 *out, int64_t from, int64_t to) {
    const int64_t each = act == AS_IS ? BLOCK : LANES, num = act == AS_IS ? linear->num : linear->num / 2, k =
        linear->k;
    Floats sums[2 * TILE_ROWS];
    int64_t shaped = 0;
    __asm__ volatile("" ::: "memory"); /* gcc does not know that a tile's load reads it */
    for (int64_t b = from; b < to; b++)
        for (int64_t row = 0, some; row < rows; row += some) {
            some = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
            if (some != shaped) shape_tiles(shaped = some, k);
            tiled_sums(x + row * k, linear->weights + b * BLOCK * k, linear->bias ? linear->bias + b * BLOCK : 0, k,
                row == 0, sums);
            finish(sums, some, act, out + row * num + b * each, num, num - b * each);
        }
    _tile_release();
}
#define MAY_USE_TILES may_use_tiles
#else
#define MAY_USE_TILES 0
INLINE void tiled_outputs(const Linear *linear, int act, const bf16 *x, int64_t rows, bf16 *out, int64_t from,
    int64_t to) { (void)linear, (void)act, (void)x, (void)rows, (void)out, (void)from, (void)to; }
#endif

/* x @ weight.T + bias with weights of 8 bits, half of bfloat16's bytes. Every 64 inputs of an output have a scale of
   their own, as have every 64 numbers of a row, which is rounded to 16 bits. Sums over 64 inputs are those of whole
   numbers, and are added in their order: a row's bits are its own, as in linear.h.

   Blocks of 32 outputs as there, but a group of 64 inputs after the other: for each four inputs 16 outputs' fours, then
   the other 16's, as unsigned bytes, 128 more than
   they are worth; behind a group its 32 scales, bfloat16. The last group may be shorter. What is too much by those 128
   is taken off again by the sum of the row's numbers. */
#pragma once
#include "linear.h"
#if HAS_AVX512

#define GROUP 64
#define MORE 128            /* than a weight is worth */
#define MOST_WEIGHT 127     /* of a weight */
#define MOST_BYTES 32639    /* of a row's number in two bytes, each of them signed */
#define MOST_TOGETHER 48    /* rows that pass over a group while it is in the nearest cache */
#define MOST_ROUNDED 131072 /* bytes of rows, on the stack */

/* How many groups k inputs are, and how many bytes a block. */
INLINE int64_t groups_of(int64_t k) { return (k + GROUP - 1) / GROUP; }
INLINE int64_t block_bytes(int64_t k) { return k * BLOCK + groups_of(k) * 2 * BLOCK; }

/* Sixteen int32, as such: gcc copies a __m512i, which is eight of 64 bits to it, before and after each instruction that
   adds to sixteen. */
typedef int Ints __attribute__((vector_size(64)));

/* acc + the products of four unsigned bytes and four signed ones, in every lane. */
#ifdef __AVX512VNNI__
INLINE Ints dot4(Ints acc, __m512i weights, __m512i bytes) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)acc, weights, bytes); }
#else
INLINE Ints dot4(Ints acc, __m512i weights, __m512i bytes) {
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(weights, _mm512_set1_epi16(0xff)),
        _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
    return acc + (Ints)even + (Ints)_mm512_madd_epi16(_mm512_srli_epi16(weights, 8), _mm512_srai_epi16(bytes, 8));
}
#endif

/* The size of the largest of up to 64 numbers, infinite or NaN if one of them is. */
INLINE float largest_size(const bf16 *x, int64_t num) {
    const __m512i sizes = _mm512_set1_epi16(0x7fff);
    const __mmask32 first = num >= 32 ? ~0u : (1u << num) - 1, second = num >= 64 ? ~0u : num > 32 ?
        (1u << (num - 32)) - 1 : 0;
    __m512i both = _mm512_max_epu16(_mm512_and_si512(_mm512_maskz_loadu_epi16(first, x), sizes),
        _mm512_and_si512(_mm512_maskz_loadu_epi16(second, x + 32), sizes));
    __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    /* below 0x8000, so the largest leaves the least up to there */
    __m128i part = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const uint32_t bits = (uint32_t)(0x7fff - _mm_extract_epi16(_mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7fff),
        part)), 0)) << 16;
    float size;
    memcpy(&size, &bits, sizeof size);
    return size;
}

/* A row's group, for a product: what a unit of it is worth, and what is to be taken off a sum. A group that holds no
   number gives NaN. */
typedef struct {
    float unit;
    int32_t off;
} Rounded;

INLINE Rounded round_group(const bf16 *x, int64_t num, int8_t *to) {
    const float size = largest_size(x, num), most = MOST_BYTES;
    if (!(size < INFINITY)) { /* no integer is near what is no number, and a sum of such would overflow */
        memset(to, 0, 2 * GROUP);
        return (Rounded){NAN, 0};
    }
    const Floats factor = all(size > 1e-30f ? most / size : 0);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < num; i += LANES) {
        __m512i q = _mm512_cvtps_epi32(times(widen(x + i), factor));
        sum = _mm512_add_epi32(sum, q);
        /* high and low bytes are signed, so high ones are those of the nearest multiple of 256 */
        _mm_storeu_si128((void *)(to + i),
            _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8)));
        _mm_storeu_si128((void *)(to + GROUP + i), _mm512_cvtepi32_epi8(q));
    }
    return (Rounded){size / most, -MORE * _mm512_reduce_add_epi32(sum)};
}

/* x [rows, k] -> groups of k, each [rows, 2, 64], and of each what its units are. */
INLINE void round_rows(const bf16 *x, int64_t rows, int64_t k, int8_t *to, Rounded *units) {
    for (int64_t from = 0; from < k; from += GROUP)
        for (int64_t row = 0; row < rows; row++, to += 2 * GROUP)
            *units++ = round_group(x + row * k + from, k - from < GROUP ? k - from : GROUP, to);
}

INLINE __m512i four(const int8_t *bytes) {
    int32_t all_four;
    memcpy(&all_four, bytes, sizeof all_four);
    return _mm512_set1_epi32(all_four);
}

/* Adds the products of some rows' numbers, of one or both of their bytes, with `num` inputs of a block. soon: what to
   ask the memory for meanwhile, so many lines of two for each four inputs. */
INLINE void add_bytes(const int rows, const int bytes, const int8_t *x, const uint8_t *w, int64_t num, const char *soon,
    int lines, Ints *its) {
    for (int64_t i = 0; i < num; i += 4) {
        __m512i first = _mm512_loadu_si512(w + i * BLOCK), second = _mm512_loadu_si512(w + i * BLOCK + 2 * BLOCK);
        if (lines) fetch(soon + i * BLOCK);
        if (lines == 2) fetch(soon + i * BLOCK + 64);
        for (int row = 0; row < rows; row++)
            for (int byte = 0; byte < bytes; byte++) {
                __m512i inputs = four(x + (2 * row + byte) * GROUP + i);
                Ints *to = its + 2 * (byte * rows + row);
                to[0] = dot4(to[0], first, inputs), to[1] = dot4(to[1], second, inputs);
            }
    }
}

/* Adds the products of some rows with a group of `num` inputs, from w on, to their sums. For one row, where there is
   little to multiply, all of the memory is asked for first: it is read 6 to 10 % faster so. */
INLINE void add_group(const int rows, const int8_t *x, const Rounded *units, const uint8_t *w, int64_t num,
    const char *soon, Floats *sums) {
    const int at_once = 2 * rows <= MOST_ROWS ? 2 : 1; /* sums fit the registers */
    const int little = rows == 1, lines = little ? 0 : at_once;
    for (int64_t i = 0; little && i < num * BLOCK; i += 64) fetch(soon + i);
    Ints its[2 * MOST_ROWS];
    for (int i = 0; i < rows * at_once; i++) its[2 * i] = its[2 * i + 1] = (Ints){0};
    add_bytes(rows, at_once, x, w, num, soon, lines, its);
    for (int row = 0; row < rows; row++) its[2 * row] <<= 8, its[2 * row + 1] <<= 8;
    if (at_once == 1) add_bytes(rows, 1, x + GROUP, w, num, soon + 64, 1, its);
    for (int row = 0; at_once == 2 && row < rows; row++)
        its[2 * row] += its[2 * (rows + row)], its[2 * row + 1] += its[2 * (rows + row) + 1];
    const Floats scales[2] = {widen((const bf16 *)(w + num * BLOCK)), widen((const bf16 *)(w + num * BLOCK) + LANES)};
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++) {
            const int i = 2 * row + half;
            /* in this order huge rows stay finite */
            sums[i] = fused(_mm512_cvtepi32_ps((__m512i)(its[i] + units[row].off)),
                times(scales[half], all(units[row].unit)), sums[i]);
        }
}

#define GROUP_OF(n)                                                   \
    case n:                                                           \
        add_group(n, its, units + row, w, num, soon, sums + 2 * row); \
        break;

/* One block, group by group; the rows pass over it as many at a time as the registers hold. */
INLINE void byte_block(int act, const int8_t *x, const Rounded *units, int64_t rows, const uint8_t *w,
    const float *bias, int64_t k, bf16 *out, int64_t stride, int64_t num_out) {
    Floats sums[2 * MOST_TOGETHER];
    const int64_t passes = (rows + MOST_ROWS - 1) / MOST_ROWS;
    start(sums, rows, bias);
    for (int64_t from = 0; from < k; from += GROUP) {
        const int64_t num = k - from < GROUP ? k - from : GROUP;
        const char *soon = (const char *)w + AHEAD;
        for (int64_t pass = 0; pass < passes; pass++) {
            const int64_t row = pass * rows / passes, some = (pass + 1) * rows / passes - row;
            const int8_t *its = x + row * 2 * GROUP;
            switch (some) { EACH_OF_WHOLE_ROWS(GROUP_OF) }
        }
        fetch(soon + num * BLOCK);
        w += num * BLOCK + 2 * BLOCK, x += rows * 2 * GROUP, units += rows;
    }
    finish(sums, rows, act, out, stride, num_out);
}

/* Apart from `multiply_bytes`, whose room on the stack would cost it a register. */
static __attribute__((noinline)) void byte_outputs(const Linear *linear, int act, const bf16 *x, int64_t rows,
    int8_t *room, bf16 *out, int64_t from, int64_t to) {
    const int64_t k = linear->k, each = act == AS_IS ? BLOCK : LANES, num = act == AS_IS ? linear->num :
        linear->num / 2;
    Rounded *units = (Rounded *)(room + groups_of(k) * 2 * GROUP * rows);
    round_rows(x, rows, k, room, units);
    for (int64_t b = from; b < to; b++)
        byte_block(act, room, units, rows, (const uint8_t *)linear->weights + b * block_bytes(k), linear->bias ?
            linear->bias + b * BLOCK : 0, k, out + b * each, num, num - b * each);
}

/* Every thread rounds all rows for itself: that costs less than to wait for it. */
static void multiply_bytes(const Linear *linear, int act, const bf16 *x, int64_t rows, bf16 *out, int id, int threads) {
    const int64_t count = (linear->num + BLOCK - 1) / BLOCK, from = count * id / threads, to =
        count * (id + 1) / threads, k = linear->k, num = act == AS_IS ? linear->num : linear->num / 2;
    const int64_t each = groups_of(k) * (2 * GROUP + (int64_t)sizeof(Rounded)), fit =
        MOST_ROUNDED / each, most = fit < 1 ? 1 : fit < MOST_TOGETHER ? fit : MOST_TOGETHER;
    int8_t *room = __builtin_alloca(each * (rows < most ? rows : most));
    for (int64_t row = 0; row < rows; row += most)
        byte_outputs(linear, act, x + row * k, rows - row < most ? rows - row : most, room, out + row * num, from, to);
}
#endif

/* `multiply` of linear.h by weights of either kind. */
INLINE void product(const Linear *linear, int act, const bf16 *x, int64_t rows, bf16 *out, int id, int threads) {
#if HAS_AVX512
    if (linear->in_bytes) {
        multiply_bytes(linear, act, x, rows, out, id, threads);
        return;
    }
#endif
    multiply(linear, act, x, rows, out, id, threads);
}

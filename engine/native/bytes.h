/* x @ weight.T + bias with weights of 8 bits and a scale for each output, of half the bytes. A row is rounded to 16 bits, of its largest number, and its sums are those
   of whole numbers: exact, whatever the threads.

   Blocks as in linear.h, but for each four inputs 16 outputs' fours, then the other 16's. A row lies in memory as its numbers' high bytes, then their low ones, unsigned:
   what is added for that is taken off by the sums of the weights. */
#pragma once
#include "linear.h"

#define MOST_BYTE_ROWS 4
#define MOST_INPUTS 65536 /* so that sums of bytes fit 32 bits */
#define LARGEST 32767

/* weights: of signed bytes if there are scales, float32 in the blocks' order, with the weights' sums beside them. k is a multiple of 16 then. */
typedef struct {
    Linear linear;
    const float *scales;
    const int32_t *sums;
} Matrix;

/* acc + the products of four unsigned bytes and four signed ones, in every lane. */
#ifdef __AVX512VNNI__
INLINE __m512i dot4(__m512i acc, __m512i bytes, __m512i weights) { return _mm512_dpbusd_epi32(acc, bytes, weights); }
#else
INLINE __m512i dot4(__m512i acc, __m512i bytes, __m512i weights) {
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srai_epi16(_mm512_slli_epi16(weights, 8), 8));
    return _mm512_add_epi32(acc, _mm512_add_epi32(even, _mm512_madd_epi16(_mm512_srli_epi16(bytes, 8), _mm512_srai_epi16(weights, 8))));
}
#endif

/* x [k] -> its bytes [2, k]; returns what a unit is worth. A row that is no numbers gives NaN. */
INLINE float in_bytes(const bf16 *x, int64_t k, uint8_t *to) {
    __m512 largest = _mm512_setzero_ps(), wrong = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += LANES) {
        __m512 v = widen(x + i);
        largest = _mm512_max_ps(largest, _mm512_abs_ps(v));
        wrong = _mm512_fmadd_ps(v, _mm512_setzero_ps(), wrong); /* 0, or NaN */
    }
    const float most_of_all = _mm512_reduce_max_ps(largest), bad = _mm512_reduce_add_ps(wrong);
    const __m512 factor = all(most_of_all > 1e-30f ? LARGEST / most_of_all : 0);
    for (int64_t i = 0; i < k; i += LANES) {
        __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(widen(x + i), factor)), _mm512_set1_epi32(32768));
        _mm_storeu_si128((void *)(to + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(q, 8)));
        _mm_storeu_si128((void *)(to + k + i), _mm512_cvtepi32_epi8(q));
    }
    return most_of_all / LARGEST + bad;
}

INLINE __m512i four(const uint8_t *bytes) {
    int32_t all_four;
    memcpy(&all_four, bytes, sizeof all_four);
    return _mm512_set1_epi32(all_four);
}

/* One block for `rows` rows. units: what theirs are worth. */
INLINE void byte_tile(const int rows, const int act, const uint8_t *x, const float *units, const int8_t *w, const float *scales, const int32_t *taken, const float *bias, int64_t k, bf16 *out,
                      int64_t stride, int64_t num) {
    __m512i high[MOST_BYTE_ROWS][2], low[MOST_BYTE_ROWS][2];
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++) high[row][half] = low[row][half] = _mm512_setzero_si512();
    for (int64_t i = 0; i < k; i += 4, w += 4 * BLOCK) {
        __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + 2 * BLOCK);
        _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)w + AHEAD + 64, _MM_HINT_T0);
        for (int row = 0; row < rows; row++) {
            __m512i its_high = four(x + 2 * row * k + i), its_low = four(x + (2 * row + 1) * k + i);
            high[row][0] = dot4(high[row][0], its_high, first), high[row][1] = dot4(high[row][1], its_high, second);
            low[row][0] = dot4(low[row][0], its_low, first), low[row][1] = dot4(low[row][1], its_low, second);
        }
    }
    for (int row = 0; row < rows; row++) {
        __m512 sum[2];
        for (int half = 0; half < 2; half++) {
            __m512i whole = _mm512_sub_epi32(high[row][half], _mm512_slli_epi32(_mm512_loadu_si512(taken + half * LANES), 7));
            __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), all(256.0f), _mm512_cvtepi32_ps(low[row][half]));
            v = _mm512_mul_ps(_mm512_mul_ps(v, all(units[row])), _mm512_loadu_ps(scales + half * LANES));
            sum[half] = bias ? _mm512_add_ps(v, _mm512_loadu_ps(bias + half * LANES)) : v;
        }
        if (act == AS_IS) {
            store(out + row * stride, sum[0], num);
            store(out + row * stride + LANES, sum[1], num - LANES);
        } else {
            store(out + row * stride, _mm512_mul_ps(activated(act, sum[0]), sum[1]), num);
        }
    }
}

INLINE void byte_blocks(const int act, const Matrix *matrix, const uint8_t *x, const float *units, int64_t rows, bf16 *out, int64_t from, int64_t to) {
    const Linear *linear = &matrix->linear;
    const int64_t k = linear->k, each = act == AS_IS ? BLOCK : LANES, num = act == AS_IS ? linear->num : linear->num / 2;
    for (int64_t b = from; b < to; b++) {
        const int8_t *w = (const int8_t *)linear->weights + b * BLOCK * k;
        const float *scales = matrix->scales + b * BLOCK, *bias = linear->bias ? linear->bias + b * BLOCK : 0;
        const int32_t *taken = matrix->sums + b * BLOCK;
        for (int64_t row = 0; row < rows;) {
            bf16 *to_row = out + row * num + b * each;
            const uint8_t *its = x + 2 * row * k;
            switch (rows - row) {
            case 1: byte_tile(1, act, its, units + row, w, scales, taken, bias, k, to_row, num, num - b * each), row += 1; break;
            case 2: byte_tile(2, act, its, units + row, w, scales, taken, bias, k, to_row, num, num - b * each), row += 2; break;
            case 3: byte_tile(3, act, its, units + row, w, scales, taken, bias, k, to_row, num, num - b * each), row += 3; break;
            default: byte_tile(4, act, its, units + row, w, scales, taken, bias, k, to_row, num, num - b * each), row += 4;
            }
        }
    }
}

/* What `product` needs as `room`. */
INLINE int64_t byte_room(int64_t rows, int64_t k) { return rows * (2 * k + (int64_t)sizeof(float)); }

/* `multiply` of linear.h, by weights of either kind. */
static void product(const Matrix *matrix, int act, const bf16 *x, int64_t rows, bf16 *out, char *room, int id, int threads) {
    const Linear *linear = &matrix->linear;
    if (!matrix->scales) {
        multiply(linear, act, x, rows, out, id, threads);
        return;
    }
    const int64_t count = (linear->num + BLOCK - 1) / BLOCK, from = count * id / threads, to = count * (id + 1) / threads;
    float *units = (float *)room;
    uint8_t *bytes = (uint8_t *)(units + rows);
    for (int64_t row = 0; row < rows; row++) units[row] = in_bytes(x + row * linear->k, linear->k, bytes + 2 * row * linear->k);
    if (act == SILU) byte_blocks(SILU, matrix, bytes, units, rows, out, from, to);
    else if (act == GELU) byte_blocks(GELU, matrix, bytes, units, rows, out, from, to);
    else byte_blocks(AS_IS, matrix, bytes, units, rows, out, from, to);
}

/* Which words of a row of bfloat16 logits can be the best or the second best once noise is added (engine/drafters/host_picks.py): a pass at the speed of the caches. What
   is found may be too much, never too little: a word's noise is large only where its hash is small, so no logarithm is taken here. */
#include "vectors.h"
#if HAS_AVX512

#define SLACK 1.001f /* more than what float32 rounds */

INLINE __m512i stirred(__m512i x) {
    x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 16)), _mm512_set1_epi32(0x7feb352d));
    x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 15)), _mm512_set1_epi32((int)0x846ca68b));
    return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

INLINE __m512 some(const bf16 *row, int64_t left, __mmask16 there) {
    return left >= LANES ? widen(row) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_mask_loadu_epi16(_mm256_set1_epi16((short)0xff80), there, row)), 16));
}

/* row, ids [num]; columns, hashes, logits: room for num. Finds those whose logit / temperature, plus noise unless the temperature is 0, can be `below` under the largest or
   more: their columns in order, hashes as `sampling.words` has them, and logits / temperature. low, high: of the position's key. top: the largest; NaN where the row is no
   numbers, and then nothing is found. */
int64_t photofinish_near(const bf16 *row, const int32_t *ids, int64_t num, float temperature, uint32_t low, uint32_t high, float below, float *top, int32_t *columns, int32_t *hashes, float *logits) {
    const int noisy = temperature != 0;
    const __m512 divisor = all(noisy ? temperature : 1.0f);
    __m512 largest = all(-INFINITY);
    __mmask16 wrong = 0;
    for (int64_t at = 0; at < num; at += LANES) {
        const __mmask16 there = num - at >= LANES ? 0xffff : (__mmask16)((1u << (num - at)) - 1);
        __m512 v = some(row + at, num - at, there);
        largest = _mm512_max_ps(largest, v);
        wrong |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    }
    const float most = _mm512_reduce_max_ps(_mm512_div_ps(largest, divisor));
    *top = wrong || !isfinite(most) ? NAN : most;
    if (isnan(*top)) return 0;
    const __m512 factor = all(expf(below) * 4294967296.0f * SLACK), least = all(most - below);
    const __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int64_t found = 0;
    for (int64_t at = 0; at < num; at += LANES) {
        const __mmask16 there = num - at >= LANES ? 0xffff : (__mmask16)((1u << (num - at)) - 1);
        __m512 v = _mm512_div_ps(some(row + at, num - at, there), divisor);
        __m512i hash = _mm512_setzero_si512();
        __mmask16 near;
        if (noisy) {
            hash = stirred(_mm512_xor_si512(_mm512_maskz_loadu_epi32(there, ids + at), _mm512_set1_epi32((int)low)));
            hash = stirred(_mm512_add_epi32(hash, _mm512_set1_epi32((int)high)));
            near = _mm512_cmp_ps_mask(_mm512_cvtepu32_ps(hash), _mm512_mul_ps(exponential(_mm512_sub_ps(v, all(most))), factor), _CMP_LE_OQ) & there;
        } else {
            near = _mm512_cmp_ps_mask(v, least, _CMP_GE_OQ) & there;
        }
        if (!near) continue;
        _mm512_mask_compressstoreu_epi32(columns + found, near, _mm512_add_epi32(places, _mm512_set1_epi32((int)at)));
        _mm512_mask_compressstoreu_epi32(hashes + found, near, hash);
        _mm512_mask_compressstoreu_ps(logits + found, near, v);
        found += __builtin_popcount(near);
    }
    return found;
}
#endif

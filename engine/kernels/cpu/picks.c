/* The choice of a draft's tokens from rows of bfloat16 logits (engine/kernels/cpu/picks.py): a pass at the speed of the
   caches finds which words can be the best or the
   second best once noise is added, perhaps too many, never too few. A word's noise is large only where its hash is
   small, so a logarithm is taken of those alone. */
#include "vectors.h"
#if HAS_AVX512
#include "hash.h"

#define SLACK 1.001f /* more than what float32 rounds */
#define LOOKS 4

/* How far below the largest logit the best scores are looked for, nearest first: each look costs as much as it finds. */
static const float BELOW[LOOKS] = {2, 10, 30, INFINITY};
#define FAR 1 /* the look beyond which no more than the best is looked for */

INLINE __m512 some(const bf16 *row, int64_t left, __mmask16 there) {
    return left >= LANES ? widen(row) :
        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(
            _mm256_mask_loadu_epi16(_mm256_set1_epi16((short)0xff80), there, row)), 16));
}

/* row, ids [num]; columns, hashes, logits: room for num. Finds those whose logit / temperature, plus noise unless the
   temperature is 0, can be `below` under the largest or
   more: their columns in order, hashes as `sampling.words` has them, and logits / temperature. low, high: of the
   position's key. top: the largest; NaN where the row is no
   numbers, and then nothing is found. */
static int64_t near(const bf16 *row, const int32_t *ids, int64_t num, float temperature, uint32_t low, uint32_t high,
    float below, float *top, int32_t *columns, int32_t *hashes, float *logits) {
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
        __mmask16 its;
        if (noisy) {
            hash = mixed(_mm512_xor_si512(_mm512_maskz_loadu_epi32(there, ids + at), _mm512_set1_epi32((int)low)));
            hash = mixed(_mm512_add_epi32(hash, _mm512_set1_epi32((int)high)));
            its = _mm512_cmp_ps_mask(_mm512_cvtepu32_ps(hash),
                _mm512_mul_ps(exponential(_mm512_sub_ps(v, all(most))), factor), _CMP_LE_OQ) & there;
        } else {
            its = _mm512_cmp_ps_mask(v, least, _CMP_GE_OQ) & there;
        }
        if (!its) continue;
        _mm512_mask_compressstoreu_epi32(columns + found, its, _mm512_add_epi32(places, _mm512_set1_epi32((int)at)));
        _mm512_mask_compressstoreu_epi32(hashes + found, its, hash);
        _mm512_mask_compressstoreu_ps(logits + found, its, v);
        found += __builtin_popcount(its);
    }
    return found;
}

/* Of `sampling.units`, as Gumbel noise. */
static float noise(int32_t hash) {
    const float u = fminf(((float)hash + (hash < 0 ? 0x1p32f : 0) + 0.5f) * 0x1p-32f, 1 - 0x1p-24f);
    return -logf(-log1pf(-u));
}

/* Rows [num_rows, num] at `positions`; seed: through splitmix64. best, scores [num_rows, wanted]: the columns with the
   largest scores, best first and the first of equals; -1 where there are no more that are at most 10 below the largest
   logit. Returns how many rows were picked from: all, or those before the first that is no numbers. */
int64_t photofinish_picks(const bf16 *rows, int64_t num_rows, const int32_t *ids, int64_t num, float temperature,
    uint64_t seed, const int64_t *positions, int64_t wanted, int32_t *columns, int32_t *hashes, float *logits,
                          int64_t *best, float *scores) {
    for (int64_t i = 0; i < num_rows; i++, best += wanted, scores += wanted) {
        const uint64_t key = splitmix64(seed ^ (uint64_t)positions[i]);
        for (int look = 0; look < LOOKS; look++) {
            float top;
            const int64_t found = near(rows + i * num, ids, num, temperature, (uint32_t)key, (uint32_t)(key >> 32),
                BELOW[look], &top, columns, hashes, logits);
            if (isnan(top)) return i;
            int64_t enough = 0;
            for (int64_t j = 0; j < wanted; j++) best[j] = -1, scores[j] = -INFINITY;
            for (int64_t j = 0; j < found; j++) {
                const float score = temperature == 0 ? logits[j] : logits[j] + noise(hashes[j]);
                if (!(score >= top - BELOW[look])) continue;
                enough++;
                int64_t at = wanted;
                while (at && score > scores[at - 1]) at--;
                if (at == wanted) continue;
                memmove(scores + at + 1, scores + at, 4 * (size_t)(wanted - 1 - at));
                memmove(best + at + 1, best + at, 8 * (size_t)(wanted - 1 - at));
                scores[at] = score, best[at] = columns[j];
            }
            if (enough >= wanted || (enough && look >= FAR)) break;
        }
    }
    return num_rows;
}
#endif

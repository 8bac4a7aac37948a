/* Sixteen float32 at a time (AVX-512), and bfloat16 as 16-bit numbers in memory. */
#pragma once
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;
#define INLINE static inline __attribute__((always_inline))
#define LANES 16

INLINE __m512 widen(const bf16 *from) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16)); }

/* acc + a0 * b0 + a1 * b1 in every lane, which holds two bfloat16 of each; to the nearest bfloat16, ties to even. */
#ifdef __AVX512BF16__
INLINE __m512 dot2(__m512 acc, __m512i a, __m512i b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
INLINE __m256i rounded(__m512 v) { return (__m256i)_mm512_cvtneps_pbh(v); }
#else
INLINE __m512 low_half(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
INLINE __m512 high_half(__m512i pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000))); }
INLINE __m512 dot2(__m512 acc, __m512i a, __m512i b) { return _mm512_fmadd_ps(high_half(a), high_half(b), _mm512_fmadd_ps(low_half(a), low_half(b), acc)); }
INLINE __m256i rounded(__m512 v) {
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fc0)));
}
#endif

INLINE void narrow(bf16 *to, __m512 v) { _mm256_storeu_si256((void *)to, rounded(v)); }
INLINE __m512 all(float value) { return _mm512_set1_ps(value); }

/* Only for x <= 89, where it is infinite; below -87 it stays at e^-87. Error below 2 units in the last place. */
INLINE __m512 exponential(__m512 x) {
    x = _mm512_max_ps(all(-87.0f), x); /* in this order NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, all(1.42860677e-6f), _mm512_fnmadd_ps(n, all(0.693145752f), x));
    __m512 sum = _mm512_fmadd_ps(all(1.0f / 5040), r, all(1.0f / 720));
    sum = _mm512_fmadd_ps(sum, r, all(1.0f / 120));
    sum = _mm512_fmadd_ps(sum, r, all(1.0f / 24));
    sum = _mm512_fmadd_ps(sum, r, all(1.0f / 6));
    sum = _mm512_fmadd_ps(sum, r, all(0.5f));
    sum = _mm512_fmadd_ps(sum, r, all(1.0f));
    return _mm512_scalef_ps(_mm512_fmadd_ps(sum, r, all(1.0f)), n);
}

INLINE __m512 sigmoid(__m512 x) { return _mm512_div_ps(all(1.0f), _mm512_add_ps(all(1.0f), exponential(_mm512_min_ps(all(89.0f), _mm512_sub_ps(_mm512_setzero_ps(), x))))); }

INLINE __m512 sum_of_pairs(__m512 a, __m512 b) { return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
INLINE __m512 sum_of_quads(__m512 a, __m512 b) {
    __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
}
INLINE __m512 sum_of_quarters(__m512 a, __m512 b) { return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd)); }

/* The sums of sixteen vectors' lanes, as one vector in their order. */
INLINE __m512 sums(const __m512 *of) {
    __m512 fours[4];
    for (int i = 0; i < 4; i++) fours[i] = sum_of_quads(sum_of_pairs(of[4 * i], of[4 * i + 1]), sum_of_pairs(of[4 * i + 2], of[4 * i + 3]));
    return sum_of_quarters(sum_of_quarters(fours[0], fours[1]), sum_of_quarters(fours[2], fours[3]));
}

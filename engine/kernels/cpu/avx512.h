/* The names of vectors.h in AVX-512 (F, BW, VL, DQ): 32 registers of sixteen float32. */
#pragma once

typedef __m512 Floats;
typedef __m512i Pairs; /* two bfloat16 in every lane */
typedef bf16 Input;    /* what a linear's rows are while it runs */

#define MOST_ROWS 12   /* of a linear at once */
#define WHOLE_ROWS 12  /* whose sums with a block of weights the registers hold */
#define HALF_ROWS 12   /* with half a block */
#define PART 256       /* inputs of half a block that stay in the nearest cache */
#define MOST_WIDENED 0 /* inputs at once; none need be */
#define SLICE 64       /* numbers of a head's values at once */
#define KEYS 16        /* at once */
#define EACH_OF_WHOLE_ROWS(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12)
#define EACH_OF_HALF_ROWS(DO)

INLINE Floats zeros(void) { return _mm512_setzero_ps(); }
INLINE Floats all(float value) { return _mm512_set1_ps(value); }
INLINE Floats floats(const float *from) { return _mm512_loadu_ps(from); }
INLINE void put(float *to, Floats v) { _mm512_storeu_ps(to, v); }
INLINE Floats plus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
INLINE Floats minus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
INLINE Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
INLINE Floats over(Floats a, Floats b) { return _mm512_div_ps(a, b); }
INLINE Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }         /* a * b + c */
INLINE Floats less_product(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a * b */
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }                       /* b if there is a NaN */
INLINE Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }                      /* likewise */
INLINE float largest_of(Floats v) { return _mm512_reduce_max_ps(v); }
INLINE float sum_of(Floats v) { return _mm512_reduce_add_ps(v); }
INLINE Floats whole(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE Floats times_power(Floats x, Floats n) { return _mm512_scalef_ps(x, n); } /* x * 2^n, n whole */

/* v in the lanes of columns `from` to `to`, other elsewhere; the first lane is that of `column`. */
INLINE Floats within(Floats v, Floats other, int column, int from, int to) {
    __m512i at = _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_set1_epi32(column));
    __mmask16 seen = _mm512_cmp_epi32_mask(at, _mm512_set1_epi32(from), _MM_CMPINT_NLT) & _mm512_cmp_epi32_mask(at,
        _mm512_set1_epi32(to), _MM_CMPINT_LT);
    return _mm512_mask_mov_ps(other, seen, v);
}

/* v, but 0 where x is below `least`. */
INLINE Floats unless_below(Floats x, Floats least, Floats v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), v); }

INLINE Floats widen(const bf16 *from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16)); }
INLINE Pairs pairs(const bf16 *from) { return _mm512_loadu_si512(from); }

/* acc + a0 * b0 + a1 * b1 in every lane, which holds two bfloat16 of each; to the nearest bfloat16, ties to even. */
#ifdef __AVX512BF16__
INLINE Floats dot2(Floats acc, Pairs a, Pairs b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
INLINE __m256i rounded(Floats v) { return (__m256i)_mm512_cvtneps_pbh(v); }
#else
INLINE Floats low_half(Pairs of) { return _mm512_castsi512_ps(_mm512_slli_epi32(of, 16)); }
INLINE Floats high_half(Pairs of) {
    return _mm512_castsi512_ps(_mm512_and_si512(of, _mm512_set1_epi32((int)0xffff0000))); }
INLINE Floats dot2(Floats acc, Pairs a, Pairs b) {
    return _mm512_fmadd_ps(high_half(a), high_half(b), _mm512_fmadd_ps(low_half(a), low_half(b), acc)); }
INLINE __m256i rounded(Floats v) {
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fc0)));
}
#endif

INLINE void narrow(bf16 *to, Floats v) { _mm256_storeu_si256((void *)to, rounded(v)); }
/* num < 16 */
INLINE void narrow_some(bf16 *to, Floats v, int num) {
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << num) - 1), rounded(v)); }

/* Rows as a linear reads them. room: for so many, but for none here. */
INLINE const Input *as_inputs(const bf16 *x, int64_t num, Input *room) { return (void)num, (void)room, x; }
/* Adds products of two inputs of some rows, at a stride from x on, with those of sixteen outputs from w on, or of twice
   sixteen. */
INLINE void add_products(const int rows, const int halves, const Input *x, int64_t stride, const bf16 *w,
    Floats *sums) {
    Pairs weights[2];
    for (int half = 0; half < halves; half++) weights[half] = pairs(w + half * 2 * LANES);
    for (int row = 0; row < rows; row++) {
        int32_t both;
        memcpy(&both, x + row * stride, sizeof both);
        for (int half = 0; half < halves; half++)
            sums[2 * row + half] = dot2(sums[2 * row + half], weights[half], _mm512_set1_epi32(both));
    }
}

INLINE Floats sum_of_pairs(Floats a, Floats b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
INLINE Floats sum_of_quads(Floats a, Floats b) {
    __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
}
INLINE Floats sum_of_quarters(Floats a, Floats b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd)); }

/* The sums of sixteen vectors' lanes, as one vector in their order. */
INLINE Floats sums(const Floats *of) {
    Floats fours[4];
    for (int i = 0; i < 4; i++)
        fours[i] = sum_of_quads(sum_of_pairs(of[4 * i], of[4 * i + 1]), sum_of_pairs(of[4 * i + 2], of[4 * i + 3]));
    return sum_of_quarters(sum_of_quarters(fours[0], fours[1]), sum_of_quarters(fours[2], fours[3]));
}

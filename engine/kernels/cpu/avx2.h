/* The names of vectors.h in AVX2 and FMA: 16 registers of eight float32, sixteen of them in two. See avx512.h. */
#pragma once

typedef struct {
    __m256 a, b;
} Floats;
typedef struct {
    Floats low, high; /* the first of each two bfloat16, the second */
} Pairs;
typedef float Input; /* widened once, not once for every block of outputs */

#define MOST_ROWS 20
#define WHOLE_ROWS 2
#define HALF_ROWS 5
#define PART 256
#define MOST_WIDENED 131072 /* on the stack */
#define SLICE 16
#define KEYS 4
#define EACH_OF_WHOLE_ROWS(DO) DO(1) DO(2)
#define EACH_OF_HALF_ROWS(DO) DO(3) DO(4) DO(5)

#define BOTH(name, call) \
    INLINE Floats name(Floats x, Floats y) { return (Floats){call(x.a, y.a), call(x.b, y.b)}; }
BOTH(plus, _mm256_add_ps)
BOTH(minus, _mm256_sub_ps)
BOTH(times, _mm256_mul_ps)
BOTH(over, _mm256_div_ps)
BOTH(larger, _mm256_max_ps)
BOTH(smaller, _mm256_min_ps)
#undef BOTH

INLINE Floats all(float value) { return (Floats){_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
INLINE Floats zeros(void) { return all(0); }
INLINE Floats floats(const float *from) { return (Floats){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
INLINE void put(float *to, Floats v) { _mm256_storeu_ps(to, v.a), _mm256_storeu_ps(to + 8, v.b); }
INLINE Floats fused(Floats x, Floats y, Floats z) {
    return (Floats){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE Floats less_product(Floats x, Floats y, Floats z) {
    return (Floats){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }

INLINE float sum_of(Floats v) {
    __m256 eight = _mm256_add_ps(v.a, v.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)), two =
        _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float largest_of(Floats v) {
    __m256 eight = _mm256_max_ps(v.a, v.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)), two =
        _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE Floats whole(Floats x) {
    return (Floats){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
        _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/* In two steps, of which each is a number where 2^n is none; n from -126 to 128, or NaN if x is. */
INLINE __m256 times_power_8(__m256 x, __m256 n) {
    __m256i both = _mm256_cvtps_epi32(n), one = _mm256_srai_epi32(both, 1), other = _mm256_sub_epi32(both, one), bias =
        _mm256_set1_epi32(127);
    __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(one, bias), 23)), second =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(other, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, first), second);
}
INLINE Floats times_power(Floats x, Floats n) { return (Floats){times_power_8(x.a, n.a), times_power_8(x.b, n.b)}; }

INLINE __m256 within_8(__m256 v, __m256 other, int column, int from, int to) {
    __m256i at = _mm256_add_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(column));
    __m256i seen = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), at),
        _mm256_cmpgt_epi32(_mm256_set1_epi32(to), at));
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(seen));
}
INLINE Floats within(Floats v, Floats other, int column, int from, int to) {
    return (Floats){within_8(v.a, other.a, column, from, to), within_8(v.b, other.b, column + 8, from, to)}; }
INLINE Floats unless_below(Floats x, Floats least, Floats v) {
    return (Floats){_mm256_and_ps(_mm256_cmp_ps(x.a, least.a, _CMP_NLT_UQ), v.a),
        _mm256_and_ps(_mm256_cmp_ps(x.b, least.b, _CMP_NLT_UQ), v.b)};
}

INLINE __m256 widen_8(const bf16 *from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from)), 16)); }
INLINE Floats widen(const bf16 *from) { return (Floats){widen_8(from), widen_8(from + 8)}; }
INLINE Pairs pairs(const bf16 *from) {
    __m256i a = _mm256_loadu_si256((const void *)from), b = _mm256_loadu_si256((const void *)(from + 16)), upper =
        _mm256_set1_epi32((int)0xffff0000);
    return (Pairs){{_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))},
                   {_mm256_castsi256_ps(_mm256_and_si256(a, upper)), _mm256_castsi256_ps(_mm256_and_si256(b, upper))}};
}
INLINE Floats dot2(Floats acc, Pairs x, Pairs y) { return fused(x.high, y.high, fused(x.low, y.low, acc)); }

/* bfloat16 in the lower halves of lanes. */
INLINE __m256i rounded_8(__m256 v) {
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc0), _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
INLINE void narrow(bf16 *to, Floats v) {
    _mm256_storeu_si256((void *)to,
    _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded_8(v.a), rounded_8(v.b)), 0xd8)); }
INLINE void narrow_some(bf16 *to, Floats v, int num) {
    bf16 both[LANES];
    narrow(both, v);
    memcpy(to, both, sizeof *to * num);
}

INLINE const Input *as_inputs(const bf16 *x, int64_t num, Input *room) {
    int64_t i = 0;
    for (; i + LANES <= num; i += LANES) put(room + i, widen(x + i));
    for (; i < num; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(room + i, &bits, sizeof bits);
    }
    return room;
}
/* First those of the first inputs, then those of the second: fewer registers are in use at a time. */
INLINE void add_products(const int rows, const int halves, const Input *x, int64_t stride, const bf16 *w,
    Floats *sums) {
    for (int second = 0; second < 2; second++) {
        Floats weights[2];
        for (int half = 0; half < halves; half++)
            weights[half] = second ? pairs(w + half * 2 * LANES).high : pairs(w + half * 2 * LANES).low;
        for (int row = 0; row < rows; row++) {
            Floats input = all(x[row * stride + second]);
            for (int half = 0; half < halves; half++)
                sums[2 * row + half] = fused(weights[half], input, sums[2 * row + half]);
        }
    }
}

INLINE __m256 sum_of_pairs(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); }
INLINE __m256 sum_of_quads(__m256 a, __m256 b) {
    __m256d c = _mm256_castps_pd(a), d = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d)), _mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));
}
INLINE __m128 sum_of_four(const Floats *of) {
    __m256 a = sum_of_quads(sum_of_pairs(of[0].a, of[1].a), sum_of_pairs(of[2].a, of[3].a)), b =
        sum_of_quads(sum_of_pairs(of[0].b, of[1].b), sum_of_pairs(of[2].b, of[3].b));
    return _mm_add_ps(_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
        _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1)));
}
INLINE Floats sums(const Floats *of) {
    return (Floats){_mm256_set_m128(sum_of_four(of + 4), sum_of_four(of)),
        _mm256_set_m128(sum_of_four(of + 12), sum_of_four(of + 8))};
}

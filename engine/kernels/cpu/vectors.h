/* Sixteen float32 at a time, and bfloat16 as 16-bit numbers in memory. avx512.h and avx2.h hold the same names, and
   what is made of these alone has, but for dot2 and
   rounding by AVX512_BF16, the same bits with both. */
#pragma once
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;
#define INLINE static inline __attribute__((always_inline))
#define LANES 16

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define HAS_AVX512 1
#include "avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#define HAS_AVX512 0
#include "avx2.h"
#else
#error "neither AVX-512 (F, BW, VL, DQ) nor AVX2 and FMA"
#endif

/* Towards the caches: the line of that address. */
INLINE void fetch(const void *from) { _mm_prefetch((const char *)from, _MM_HINT_T0); }

/* Only for x <= 89, where it is infinite; below -87 it stays at e^-87. Error below 2 units in the last place. */
INLINE Floats exponential(Floats x) {
    x = larger(all(-87.0f), x); /* in this order NaN stays NaN */
    Floats n = whole(times(x, all(1.44269504f)));
    Floats r = less_product(n, all(1.42860677e-6f), less_product(n, all(0.693145752f), x));
    Floats sum = fused(all(1.0f / 5040), r, all(1.0f / 720));
    sum = fused(sum, r, all(1.0f / 120));
    sum = fused(sum, r, all(1.0f / 24));
    sum = fused(sum, r, all(1.0f / 6));
    sum = fused(sum, r, all(0.5f));
    sum = fused(sum, r, all(1.0f));
    return times_power(fused(sum, r, all(1.0f)), n);
}

INLINE Floats sigmoid(Floats x) {
    return over(all(1.0f), plus(all(1.0f), exponential(smaller(all(89.0f), minus(zeros(), x))))); }

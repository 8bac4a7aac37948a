/* What a decoder does with single rows between its linears: norms, sums, turns of heads. */
#pragma once
#include "vectors.h"

/* Bytes in whole lines of the cache. */
#define ALIGNED(bytes) (((bytes) + 63) & ~(int64_t)63)

/* x / rms(x) * scale. scale may be null. size is a multiple of 16. */
INLINE float inverse_rms(const bf16 *x, int64_t size, float eps) {
    __m512 squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += LANES) {
        __m512 v = widen(x + i);
        squares = _mm512_fmadd_ps(v, v, squares);
    }
    return 1.0f / sqrtf(_mm512_reduce_add_ps(squares) / (float)size + eps);
}

INLINE void norm(const bf16 *x, const float *scale, float eps, int64_t size, bf16 *out) {
    __m512 factor = all(inverse_rms(x, size, eps));
    for (int64_t i = 0; i < size; i += LANES) narrow(out + i, _mm512_mul_ps(_mm512_mul_ps(widen(x + i), factor), _mm512_loadu_ps(scale + i)));
}

INLINE void add(bf16 *x, const bf16 *y, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) narrow(x + i, _mm512_add_ps(widen(x + i), widen(y + i)));
}

/* A head of a query or key: its norm, if it has one, and its turn. cos, sin [dim / 2], dim / 2 a multiple of 16. */
INLINE void turn(const bf16 *head, const float *scale, float eps, const float *cos, const float *sin, int64_t dim, bf16 *out) {
    int64_t half = dim / 2;
    __m512 factor = all(scale ? inverse_rms(head, dim, eps) : 1.0f);
    for (int64_t i = 0; i < half; i += LANES) {
        __m512 a = _mm512_mul_ps(widen(head + i), factor), b = _mm512_mul_ps(widen(head + half + i), factor);
        if (scale) a = _mm512_mul_ps(a, _mm512_loadu_ps(scale + i)), b = _mm512_mul_ps(b, _mm512_loadu_ps(scale + half + i));
        __m512 c = _mm512_loadu_ps(cos + i), s = _mm512_loadu_ps(sin + i);
        narrow(out + i, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
        narrow(out + half + i, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
    }
}

/* What a decoder does with single rows between its linears: norms, sums, turns of heads. */
#pragma once
#include "vectors.h"

/* Bytes in whole lines of the cache. */
#define ALIGNED(bytes) (((bytes) + 63) & ~(int64_t)63)

/* x / rms(x) * scale. scale may be null. size is a multiple of 16. */
INLINE float inverse_rms(const bf16 *x, int64_t size, float eps) {
    Floats squares = zeros();
    for (int64_t i = 0; i < size; i += LANES) {
        Floats v = widen(x + i);
        squares = fused(v, v, squares);
    }
    return 1.0f / sqrtf(sum_of(squares) / (float)size + eps);
}

INLINE void norm(const bf16 *x, const float *scale, float eps, int64_t size, bf16 *out) {
    Floats factor = all(inverse_rms(x, size, eps));
    for (int64_t i = 0; i < size; i += LANES) narrow(out + i, times(times(widen(x + i), factor), floats(scale + i)));
}

INLINE void add(bf16 *x, const bf16 *y, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) narrow(x + i, plus(widen(x + i), widen(y + i)));
}

/* A head of a query or key: its norm, if it has one, and its turn. cos, sin [dim / 2], dim / 2 a multiple of 16. */
INLINE void turn(const bf16 *head, const float *scale, float eps, const float *cos, const float *sin, int64_t dim,
    bf16 *out) {
    int64_t half = dim / 2;
    Floats factor = all(scale ? inverse_rms(head, dim, eps) : 1.0f);
    for (int64_t i = 0; i < half; i += LANES) {
        Floats a = times(widen(head + i), factor), b = times(widen(head + half + i), factor);
        if (scale) a = times(a, floats(scale + i)), b = times(b, floats(scale + half + i));
        Floats c = floats(cos + i), s = floats(sin + i);
        narrow(out + i, less_product(b, s, times(a, c)));
        narrow(out + half + i, fused(a, s, times(b, c)));
    }
}

/* Weights into the blocks of bytes.h. */
#include "bytes.h"
#if HAS_AVX512

/* num outputs, k inputs, a multiple of 16; gated: as `photofinish_pack`. to [blocks, block_bytes(k)]. A group's scale
   is the bfloat16 nearest to a 127th of its largest weight. */
void photofinish_pack_bytes(const bf16 *weight, uint8_t *to, int64_t num, int64_t k, int gated, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t place = 0; place < (num + BLOCK - 1) / BLOCK * BLOCK; place++) {
        const int64_t panel = place / LANES, lane = place % LANES, output = gated ? panel / 2 * LANES +
            panel % 2 * (num / 2) + lane : place;
        uint8_t *group = to + place / BLOCK * block_bytes(k);
        for (int64_t from = 0; from < k; from += GROUP) {
            const int64_t some = k - from < GROUP ? k - from : GROUP;
            const bf16 *its = weight + output * k + from;
            const float size = output < num ? largest_size(its, some) : 0;
            bf16 scale[LANES];
            narrow(scale, all(size > 1e-30f ? size / MOST_WEIGHT : size < INFINITY ? 0 : size));
            const float unit = sum_of(widen(scale)) / LANES;
            for (int64_t i = 0; i < some; i += LANES) {
                int32_t parts[LANES];
                const Floats exact = output < num && unit > 0 ? times(widen(its + i), all(1 / unit)) : zeros();
                const __m512i q = _mm512_cvtps_epi32(smaller(larger(exact, all(-MOST_WEIGHT)), all(MOST_WEIGHT)));
                _mm512_storeu_si512(parts, _mm512_add_epi32(q, _mm512_set1_epi32(MORE)));
                for (int64_t j = 0; j < LANES; j++)
                    group[(i + j) / 4 * 4 * BLOCK + panel % 2 * 2 * BLOCK + lane * 4 + j % 4] = (uint8_t)parts[j];
            }
            memcpy(group + some * BLOCK + (panel % 2 * LANES + lane) * sizeof *scale, scale, sizeof *scale);
            group += some * BLOCK + 2 * BLOCK;
        }
    }
}
#endif

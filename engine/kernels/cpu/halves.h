/* What follows attention in a layer, by all threads of a team. Its rows lie with every thread: each adds for itself. */
#pragma once
#include "bytes.h"
#include "rows.h"

typedef struct {
    const Linear *o, *gate_up, *down;
    const float *inner_norm;
    int act;
    float eps;
} SecondHalf;

/* stream += o(mixed); stream += down(act(gate_up(norm(stream)))). mixed, added, inner, more: the team's; stream, normed
   [rows, size]: the thread's own. */
INLINE void finish_layer(const SecondHalf *h, const bf16 *mixed, int64_t rows, int64_t size, bf16 *added, bf16 *inner,
    bf16 *more, bf16 *normed, bf16 *stream, int id, int num) {
    product(h->o, AS_IS, mixed, rows, added, id, num);
#pragma omp barrier
    for (int64_t row = 0; row < rows; row++) {
        add(stream + row * size, added + row * size, size);
        norm(stream + row * size, h->inner_norm, h->eps, size, normed + row * size);
    }
    product(h->gate_up, h->act, normed, rows, inner, id, num);
#pragma omp barrier
    product(h->down, AS_IS, inner, rows, more, id, num);
#pragma omp barrier
    for (int64_t row = 0; row < rows; row++) add(stream + row * size, more + row * size, size);
}

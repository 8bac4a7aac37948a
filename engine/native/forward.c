/* A whole step in one call: what Python and torch would do between embeddings, layers and logits costs more than it looks, since the weights have just pushed all of
   it out of the caches. */
#include "linear.h"

void photofinish_decode(const void *decoder, bf16 *const *cache, const float *const *tables, bf16 *x, bf16 *kept, int64_t rows, int64_t at, int64_t S, int threads, char *room);
void photofinish_linear(const Linear *linear, const bf16 *x, bf16 *out, int64_t rows, int threads);

/* embeddings [num_tokens, hidden], hidden a multiple of 16; times scale, unless that is 0. decoder: of step.c. */
typedef struct {
    const void *decoder;
    const Linear *head;
    const bf16 *embeddings;
    int64_t num_tokens, hidden, num_layers;
    float scale;
} Model;

/* See `photofinish_decode`. ids [rows]; x: room for [rows, hidden]; kept: null, or [num_layers + 1, rows, hidden] for transformers' hidden states; logits: null, or [rows, head->num].
   Returns 0, and has done nothing, where an id is no token. */
int photofinish_forward(const Model *m, bf16 *const *cache, const float *const *tables, const int64_t *ids, bf16 *x, bf16 *kept, bf16 *logits, int64_t rows, int64_t at, int64_t S, int threads, char *room) {
    const int64_t size = m->hidden, all_rows = rows * size;
    for (int64_t row = 0; row < rows; row++)
        if (ids[row] < 0 || ids[row] >= m->num_tokens) return 0;
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *from = m->embeddings + ids[row] * size;
        bf16 *to = x + row * size;
        if (m->scale == 0) memcpy(to, from, 2 * size);
        else
            for (int64_t i = 0; i < size; i += LANES) narrow(to + i, _mm512_mul_ps(widen(from + i), all(m->scale)));
    }
    if (kept) memcpy(kept, x, 2 * all_rows);
    photofinish_decode(m->decoder, cache, tables, x, kept ? kept + all_rows : 0, rows, at, S, threads, room);
    if (kept) memcpy(kept + m->num_layers * all_rows, x, 2 * all_rows); /* the last is what the last norm gives */
    if (logits) photofinish_linear(m->head, x, logits, rows, threads);
    return 1;
}

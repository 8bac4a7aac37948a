/* The rows of a DFlash head (engine/heads/dflash.py) on the CPU in one call with one team of threads: context rows
   fused and put into the cache, the block of the last token
   and masks through the layers, logits of the rows that are wanted. The weights are read once; what nobody reads of the
   last layer is not computed. */
#include <omp.h>
#include "attention.h"
#include "halves.h"

/* window 0: none. causal: a row of the block does not look at those behind it. */
typedef struct {
    Linear query, key_value, o, gate_up, down;
    const float *norm, *inner_norm, *query_norm, *key_norm;
    int64_t window, causal;
} BlockLayer;

/* Multiples of 16: features, hidden, inner; of 32: dim. embedding_scale 0: as they are. window_from_block: windows end
   where the block begins, not at their row. */
typedef struct {
    const BlockLayer *layers;
    Linear fuse, output;
    const bf16 *embedding;
    const float *context_norm, *norm;
    int64_t words, mask, num_layers, hidden, heads, kv, dim, inner, act, window_from_block;
    float eps, scale, embedding_scale;
} Block;

typedef struct {
    bf16 *fused, *key_value, *query, *mixed, *added, *inner, *more;
} Shared;

/* Where everything lies from `base` on; returns where it ends. */
static int64_t lay_out(const Block *b, int64_t context, int64_t rows, int64_t base, Shared *s) {
    const int64_t heads = b->heads * b->dim, both = context + rows;
    const int64_t sizes[] =
        {context * b->hidden, both * 2 * b->kv * b->dim, rows * heads, rows * heads, rows * b->hidden, rows * b->inner,
        rows * b->hidden};
    bf16 **places[] = {&s->fused, &s->key_value, &s->query, &s->mixed, &s->added, &s->inner, &s->more};
    for (int i = 0; i < 7; i++) *places[i] = (bf16 *)base, base += ALIGNED(2 * sizes[i]);
    return base;
}

static int64_t scores_bytes(int64_t S) { return ALIGNED(4 * TOGETHER * (S + LANES)); }
static int64_t own_bytes(const Block *b, int64_t context, int64_t rows, int64_t S) { return scores_bytes(S) +
    ALIGNED(2 * rows * b->hidden) + ALIGNED(2 * (context + rows) * b->hidden); }

/* What `photofinish_block` needs as `room`. */
int64_t photofinish_block_room(const Block *b, int64_t context, int64_t rows, int64_t S, int threads) {
    Shared s;
    return 64 + lay_out(b, context, rows, 0, &s) + threads * own_bytes(b, context, rows, S);
}

static void embed(const Block *b, int64_t word, bf16 *to) {
    const bf16 *from = b->embedding + word * b->hidden;
    if (b->embedding_scale == 0) memcpy(to, from, 2 * b->hidden);
    else
        for (int64_t i = 0; i < b->hidden; i += LANES) narrow(to + i, times(widen(from + i), all(b->embedding_scale)));
}

/* Thread `id`: its share of the rows `first` on of a block that begins at column `start`, `rows` in all, of all heads;
   `a` tells of those rows. */
static void attend_block(const Block *b, const BlockLayer *layer, const Attention *a, int64_t start, int64_t rows,
    int64_t first, const bf16 *query, bf16 *out, float *scores, int id, int threads) {
    const int64_t total = a->heads * a->num, end = total * (id + 1) / threads, window = layer->window;
    for (int64_t unit = total * id / threads; unit < end;) {
        const int some = together(a, unit, end);
        Rows of;
        for (int i = 0; i < some; i++) {
            const int64_t at = start + first + (unit + i) % a->num;
            of.from[i] = 0, of.to[i] = layer->causal ? at + 1 : start + rows;
            if (window && b->window_from_block) of.from[i] = most(0, start - window);
            else if (window) of.from[i] = most(0, at - window + 1), of.to[i] = least(of.to[i], at + window);
        }
        attend_some(a, query, a->heads * a->dim, out, unit, some, &of, scores);
        unit += some;
    }
}

/* Takes in the target's `states` [context, features] of positions `at` and on, then `rows` rows of a block that begins
   behind them, the first of word `token`, the others masks;
   rows 0: none. Keys and values of both go into cache: of every layer keys and values [kv, S, dim]. cos, sin [S, dim /
   2].
   last: [wanted, hidden] for what the output layer reads of the block's rows `first` and on; logits: null, or [wanted,
   output->num].
   Returns whether `token` is no word, and then nothing was done. */
int photofinish_block(const Block *b, bf16 *const *cache, const float *cos, const float *sin, const bf16 *states,
    int64_t context, int64_t token, int64_t rows, int64_t first, int64_t wanted,
                      int64_t at, int64_t S, bf16 *last, bf16 *logits, int threads, char *room) {
    const int64_t size = b->hidden, dim = b->dim, both = context + rows, start = at + context;
    Shared s;
    char *own = (char *)lay_out(b, context, rows, ALIGNED((int64_t)room), &s);
    cos += at * dim / 2, sin += at * dim / 2;
    if (rows && (token < 0 || token >= b->words)) return 1;
#pragma omp parallel num_threads(threads)
    {
        const int id = omp_get_thread_num(), num = omp_get_num_threads();
        float *scores = (float *)(own + id * own_bytes(b, context, rows, S));
        bf16 *stream = (bf16 *)((char *)scores + scores_bytes(S)), *fused = stream + ALIGNED(2 * rows * size) / 2,
            *normed = fused + context * size;
        for (int64_t row = 0; row < rows; row++) embed(b, row ? b->mask : token, stream + row * size);
        product(&b->fuse, AS_IS, states, context, s.fused, id, num);
#pragma omp barrier
        for (int64_t row = 0; row < context; row++)
            norm(s.fused + row * size, b->context_norm, b->eps, size, fused + row * size);
        for (int64_t l = 0; l < b->num_layers; l++) {
            const BlockLayer *layer = b->layers + l;
            bf16 *keys = cache[2 * l], *values = cache[2 * l + 1];
            /* the rows that are still needed */
            const int64_t from = l == b->num_layers - 1 ? first : 0, left = l == b->num_layers - 1 ? wanted : rows;
            const int64_t pairs = 2 * b->kv * both, units = pairs + left * b->heads;
            for (int64_t row = 0; row < rows; row++)
                norm(stream + row * size, layer->norm, b->eps, size, normed + row * size);
            product(&layer->key_value, AS_IS, fused, both, s.key_value, id, num);
            product(&layer->query, AS_IS, normed + from * size, left, s.query, id, num);
#pragma omp barrier
            for (int64_t unit = units * id / num; unit < units * (id + 1) / num; unit++) {
                if (unit < pairs) {
                    int64_t row = unit / (2 * b->kv), head = unit % (2 * b->kv), value = head - b->kv;
                    const bf16 *its = s.key_value + unit * dim;
                    if (value >= 0) memcpy(values + (value * S + at + row) * dim, its, 2 * dim);
                    else turn(its, layer->key_norm, b->eps, cos + row * dim / 2, sin + row * dim / 2, dim, keys +
                        (head * S + at + row) * dim);
                } else {
                    int64_t row = context + from + (unit - pairs) / b->heads;
                    bf16 *its = s.query + (unit - pairs) * dim;
                    turn(its, layer->query_norm, b->eps, cos + row * dim / 2, sin + row * dim / 2, dim, its);
                }
            }
#pragma omp barrier
            if (!left) continue;
            const Attention attention = {keys, values, b->heads, b->kv, dim, S, 0, left, 0, b->scale, 0, 0, 0};
            attend_block(b, layer, &attention, start, rows, from, s.query, s.mixed, scores, id, num);
#pragma omp barrier
            const SecondHalf half = {&layer->o, &layer->gate_up, &layer->down, layer->inner_norm, (int)b->act, b->eps};
            finish_layer(&half, s.mixed, left, size, s.added, s.inner, s.more, normed, stream + from * size, id, num);
        }
        for (int64_t row = 0; row < wanted; row++)
            norm(stream + (first + row) * size, b->norm, b->eps, size, normed + row * size);
        if (id == 0) memcpy(last, normed, 2 * wanted * size);
        if (logits) product(&b->output, AS_IS, normed, wanted, logits, id, num);
    }
    return 0;
}

/* A narrow step of a decoder on the CPU: what torch does in some forty operations a layer, in one call with one team of
   threads. Row for row the same bits at any
   width, any cache length and any number of threads; see linear.h and attention.h. */
#include <omp.h>
#include "attention.h"
#include "bytes.h"
#include "rows.h"

typedef struct {
    Linear qkv, o, gate_up, down;
    const float *norms[4], *query_norm, *key_norm; /* two norms or four; the others null */
    int64_t window, angles;                        /* which of the tables */
    float scale;
} Layer;

typedef struct {
    const Layer *layers;
    const float *norm; /* after the last layer */
    int64_t num_layers, hidden, heads, kv, dim, inner, sandwich, act;
    float eps;
} Decoder;

static int64_t own_bytes(const Decoder *d, int64_t rows, int64_t S) { return ALIGNED(4 * TOGETHER * (S + LANES)) +
    2 * ALIGNED(2 * rows * d->hidden); }
static int64_t shared_bytes(const Decoder *d, int64_t rows) {
    return ALIGNED(2 * rows * (d->heads + 2 * d->kv) * d->dim) + ALIGNED(2 * rows * d->heads * d->dim) +
        2 * ALIGNED(2 * rows * d->hidden) + ALIGNED(2 * rows * d->inner);
}

/* What `decode` needs as `room`. */
int64_t photofinish_room(const Decoder *d, int64_t rows, int64_t S, int threads) { return 64 + shared_bytes(d, rows) +
    threads * own_bytes(d, rows, S); }

/* x [rows, hidden] -> what the last norm gives of it, in place. cache: keys and values [kv, S, dim] of every layer;
   tables: cosines and sines [S, dim / 2] of every kind of
   angles; kept: null, or [num_layers, rows, hidden] for what every layer gave. tree: null where the rows have the
   positions from `at` on; else a row's position is `at` and its depth, while its keys and values lie at `at` and its
   number. */
static void decode(const Decoder *d, bf16 *const *cache, const float *const *tables, bf16 *x, bf16 *kept,
    int64_t rows, int64_t at, int64_t S, int threads, char *room, const Tree *tree) {
    const int64_t size = d->hidden, dim = d->dim, num_heads = d->heads + 2 * d->kv, width = num_heads * dim;
    room = (char *)ALIGNED((int64_t)room);
    bf16 *qkv = (bf16 *)room, *mixed = qkv + ALIGNED(2 * rows * width) / 2, *added = mixed +
        ALIGNED(2 * rows * d->heads * dim) / 2;
    bf16 *more = added + ALIGNED(2 * rows * size) / 2, *inner = more + ALIGNED(2 * rows * size) / 2;
    char *own = room + shared_bytes(d, rows);
#pragma omp parallel num_threads(threads)
    {
        /* Every thread keeps all rows of the residual stream for itself: to add and norm a row costs less than to wait
           for it. */
        const int id = omp_get_thread_num(), num = omp_get_num_threads();
        float *scores = (float *)(own + id * own_bytes(d, rows, S));
        bf16 *stream = (bf16 *)((char *)scores + ALIGNED(4 * TOGETHER * (S + LANES))), *normed = stream +
            ALIGNED(2 * rows * size) / 2;
        memcpy(stream, x, 2 * rows * size);
        for (int64_t l = 0; l < d->num_layers; l++) {
            const Layer *layer = d->layers + l;
            bf16 *keys = cache[2 * l], *values = cache[2 * l + 1];
            const float *cos = tables[2 * layer->angles] + at * dim / 2, *sin = tables[2 * layer->angles + 1] +
                at * dim / 2;
            for (int64_t row = 0; row < rows; row++)
                norm(stream + row * size, layer->norms[0], d->eps, size, normed + row * size);
            product(&layer->qkv, AS_IS, normed, rows, qkv, id, num);
#pragma omp barrier
            for (int64_t unit = rows * num_heads * id / num; unit < rows * num_heads * (id + 1) / num; unit++) {
                int64_t row = unit / num_heads, head = unit % num_heads, key = head - d->heads, value = key - d->kv;
                int64_t turns = (tree ? tree->depth[row] : row) * dim / 2;
                bf16 *from = qkv + unit * dim;
                if (value >= 0) memcpy(values + (value * S + at + row) * dim, from, 2 * dim);
                else if (key >= 0) turn(from, layer->key_norm, d->eps, cos + turns, sin + turns, dim,
                    keys + (key * S + at + row) * dim);
                else turn(from, layer->query_norm, d->eps, cos + turns, sin + turns, dim, from);
            }
#pragma omp barrier
            const Attention attention = {keys, values, d->heads, d->kv, dim, S, layer->window, rows, at, layer->scale,
                tree, 0, 0};
            attend_all(&attention, qkv, width, mixed, scores, id, num);
#pragma omp barrier
            product(&layer->o, AS_IS, mixed, rows, added, id, num);
#pragma omp barrier
            for (int64_t row = 0; row < rows; row++) {
                bf16 *to = stream + row * size, *other = normed + row * size;
                if (d->sandwich) norm(added + row * size, layer->norms[1], d->eps, size, other);
                add(to, d->sandwich ? other : added + row * size, size);
                norm(to, layer->norms[d->sandwich ? 2 : 1], d->eps, size, other);
            }
            product(&layer->gate_up, (int)d->act, normed, rows, inner, id, num);
#pragma omp barrier
            product(&layer->down, AS_IS, inner, rows, more, id, num);
#pragma omp barrier
            for (int64_t row = 0; row < rows; row++) {
                bf16 *other = normed + row * size;
                if (d->sandwich) norm(more + row * size, layer->norms[3], d->eps, size, other);
                add(stream + row * size, d->sandwich ? other : more + row * size, size);
            }
            if (kept && id == 0) memcpy(kept + l * rows * size, stream, 2 * rows * size);
        }
        if (id == 0)
            for (int64_t row = 0; row < rows; row++) norm(stream + row * size, d->norm, d->eps, size, x + row * size);
    }
}

/* weight [num, k] -> blocks of linear.h; gated: its first half gates, the other values, in turns of 16. */
void photofinish_pack(const bf16 *weight, bf16 *to, int64_t num, int64_t k, int gated, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t panel = 0; panel < (num + BLOCK - 1) / BLOCK * 2; panel++) {
        int64_t first = gated ? panel / 2 * LANES + panel % 2 * (num / 2) : panel * LANES, there = num - first;
        for (int64_t pair = 0; pair < k / 2; pair++) {
            bf16 *place = to + (panel / 2 * k + 2 * pair) * BLOCK + panel % 2 * BLOCK;
            for (int64_t lane = 0; lane < LANES; lane++) {
                if (lane < there) memcpy(place + 2 * lane, weight + (first + lane) * k + 2 * pair, 2 * sizeof *place);
                else memset(place + 2 * lane, 0, 2 * sizeof *place);
            }
        }
    }
}

/* Whether linears multiply by AMX here. */
int photofinish_tiles(void) { return MAY_USE_TILES; }

/* One linear: x [rows, k] -> out [rows, num]. */
void photofinish_linear(const Linear *linear, const bf16 *x, bf16 *out, int64_t rows, int threads) {
#pragma omp parallel num_threads(threads)
    product(linear, AS_IS, x, rows, out, omp_get_thread_num(), omp_get_num_threads());
}

/* A gated one: x [rows, k] -> act(gate) * value [rows, num / 2]. */
void photofinish_gated(const Linear *linear, const bf16 *x, bf16 *out, int64_t rows, int act, int threads) {
#pragma omp parallel num_threads(threads)
    product(linear, act, x, rows, out, omp_get_thread_num(), omp_get_num_threads());
}

/* Attention alone. scores: room for threads * 4 * (S + 16) floats. */
void photofinish_attention(const Attention *a, const bf16 *query, bf16 *out, float *scores, int threads) {
#pragma omp parallel num_threads(threads)
    attend_all(a, query, a->heads * a->dim, out, scores + omp_get_thread_num() * TOGETHER * (a->S + LANES),
        omp_get_thread_num(), omp_get_num_threads());
}

/* embeddings [num_tokens, hidden], hidden a multiple of 16; times scale, unless that is 0. */
typedef struct {
    const Decoder *decoder;
    const Linear *head;
    const bf16 *embeddings;
    int64_t num_tokens, hidden, num_layers;
    float scale;
} Model;

/* A whole step in one call: what Python and torch would do between embeddings, layers and logits costs more than it
   looks, since the weights have just pushed all of it
   out of the caches. ids [rows]; x: room for [rows, hidden]; kept: null, or [num_layers + 1, rows, hidden] for
   transformers' hidden states; logits: null, or [rows, head->num]; parents: null where rows follow one another, or
   [rows], each one of the rows before it, of which the first is not read.
   Returns 0, and has done nothing, where an id is no token, or parents are no tree of at most MAX_TREE rows. */
int photofinish_forward(const Model *m, bf16 *const *cache, const float *const *tables, const int64_t *ids, bf16 *x,
    bf16 *kept, bf16 *logits, const int32_t *parents, int64_t rows, int64_t at, int64_t S, int threads, char *room) {
    const int64_t size = m->hidden, all_rows = rows * size;
    Tree tree;
    if (parents && !as_tree(parents, rows, &tree)) return 0;
    for (int64_t row = 0; row < rows; row++)
        if (ids[row] < 0 || ids[row] >= m->num_tokens) return 0;
    for (int64_t row = 0; row < rows; row++) {
        const bf16 *from = m->embeddings + ids[row] * size;
        bf16 *to = x + row * size;
        if (m->scale == 0) memcpy(to, from, 2 * size);
        else
            for (int64_t i = 0; i < size; i += LANES) narrow(to + i, times(widen(from + i), all(m->scale)));
    }
    if (kept) memcpy(kept, x, 2 * all_rows);
    decode(m->decoder, cache, tables, x, kept ? kept + all_rows : 0, rows, at, S, threads, room, parents ? &tree : 0);
    if (kept) memcpy(kept + m->num_layers * all_rows, x, 2 * all_rows); /* the last is what the last norm gives */
    if (logits) photofinish_linear(m->head, x, logits, rows, threads);
    return 1;
}

/* The rows `path` [num], ascending, of the step from `at` on take the places of its first ones, in every layer. */
void photofinish_keep(bf16 *const *cache, int64_t num_layers, int64_t kv, int64_t S, int64_t dim, int64_t at,
    const int32_t *path, int64_t num) {
    for (int64_t side = 0; side < 2 * num_layers; side++)
        for (int64_t head = 0; head < kv; head++) {
            bf16 *from = cache[side] + (head * S + at) * dim;
            for (int64_t i = 0; i < num; i++)
                if (path[i] != i) memcpy(from + i * dim, from + path[i] * dim, 2 * dim);
        }
}

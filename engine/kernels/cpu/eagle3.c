/* The rows of an EAGLE-3 head (engine/heads/eagle3.py) on the CPU in one call with one team of threads: embeddings
   looked up, the target's states fused, decoder layers, logits. The weights are read once; what nobody reads of the
   last layer is not computed. */
#include <omp.h>
#include "attention.h"
#include "bytes.h"
#include "rows.h"

typedef struct {
    Linear qkv, o, gate_up, down;
    /* `norm` of the first layer is that of embeddings; the last two may be null */
    const float *norm, *inner_norm, *query_norm, *key_norm;
    int64_t window;
} HeadLayer;

/* Multiples of 16: features, hidden, inner; of 32: dim. states: how many parts `state_norms` norms each on its own. */
typedef struct {
    const HeadLayer *layers;
    Linear fuse, output;
    const bf16 *embedding;
    const float *hidden_norm, *norm, *features_norm, *state_norms; /* the last two may be null */
    int64_t words, num_layers, hidden, heads, kv, dim, inner, act, features, states, norm_before_residual, norm_output;
    float eps, scale;
} Head;

#define MOST(a, b) ((a) > (b) ? (a) : (b))

static int64_t widest(const Head *h) { return MOST(MOST(h->features, 2 * h->hidden), MOST(h->inner, h->heads * h->dim));
    }

typedef struct {
    bf16 *hidden, *qkv, *mixed, *added, *inner, *more;
} Shared;

/* Where everything lies from `base` on; returns where it ends. */
static int64_t lay_out(const Head *h, int64_t rows, int64_t base, Shared *s) {
    const int64_t sizes[] =
        {h->hidden, (h->heads + 2 * h->kv) * h->dim, h->heads * h->dim, h->hidden, h->inner, h->hidden};
    bf16 **places[] = {&s->hidden, &s->qkv, &s->mixed, &s->added, &s->inner, &s->more};
    for (int i = 0; i < 6; i++) *places[i] = (bf16 *)base, base += ALIGNED(2 * rows * sizes[i]);
    return base;
}

static int64_t scores_bytes(int64_t S) { return ALIGNED(4 * TOGETHER * (S + LANES)); }
static int64_t own_bytes(const Head *h, int64_t rows, int64_t S) { return scores_bytes(S) +
    ALIGNED(2 * rows * h->hidden) + ALIGNED(2 * rows * widest(h)); }

/* What `photofinish_head` needs as `room`. */
int64_t photofinish_head_room(const Head *h, int64_t rows, int64_t S, int threads) {
    Shared s;
    return 64 + lay_out(h, rows, 0, &s) + threads * own_bytes(h, rows, S);
}

/* Norms a row of features -> out [features]. */
INLINE void norm_features(const Head *h, const bf16 *x, bf16 *out) {
    const int64_t each = h->features / h->states;
    if (h->features_norm) norm(x, h->features_norm, h->eps, h->features, out), x = out;
    if (h->state_norms)
        for (int64_t i = 0; i < h->states; i++)
            norm(x + i * each, h->state_norms + i * each, h->eps, each, out + i * each);
}

/* What follows attention in a layer, by all threads of a team:
   stream += o(mixed); stream += down(act(gate_up(norm(stream)))).
   stream, normed [rows, hidden]: the thread's own, since each adds for itself. */
INLINE void finish_layer(const Head *h, const HeadLayer *layer, const Shared *s, int64_t rows, bf16 *normed,
    bf16 *stream, int id, int num) {
    const int64_t size = h->hidden;
    product(&layer->o, AS_IS, s->mixed, rows, s->added, id, num);
#pragma omp barrier
    for (int64_t row = 0; row < rows; row++) {
        add(stream + row * size, s->added + row * size, size);
        norm(stream + row * size, layer->inner_norm, h->eps, size, normed + row * size);
    }
    product(&layer->gate_up, (int)h->act, normed, rows, s->inner, id, num);
#pragma omp barrier
    product(&layer->down, AS_IS, s->inner, rows, s->more, id, num);
#pragma omp barrier
    for (int64_t row = 0; row < rows; row++) add(stream + row * size, s->more + row * size, size);
}

/* Rows of words `tokens`. Their keys and values go into cache: of every layer keys and values [kv, S, dim]. cos, sin
   [S, dim / 2]. Without parents: rows at positions `at` and on, of the target's features [rows, features]; fed: null
   where no row is read, else [hidden] for what the last row feeds back; last: [hidden] for what the output layer reads
   of it; logits: null, or its words.
   With parents [base + rows]: the rows from `base` on of a tree whose first row is that last row, at position `at`; they
   lie in the cache in the tree's order. fed: [base + rows, hidden], what each row of the tree feeds back, of which those
   from `base` on are written; last, logits: of all new rows, whose parents are earlier ones.
   Returns whether there is a token of no word, or the parents are no tree, and then nothing was done. */
int photofinish_head(const Head *h, bf16 *const *cache, const float *cos, const float *sin, const int64_t *tokens,
    const bf16 *features, const int32_t *parents, int64_t base, int64_t rows, int64_t at, int64_t S, bf16 *fed,
                      bf16 *last, bf16 *logits, int threads, char *room) {
    const int64_t size = h->hidden, dim = h->dim, num_heads = h->heads + 2 * h->kv, width = num_heads * dim;
    Shared s;
    Tree tree;
    char *own = (char *)lay_out(h, rows, ALIGNED((int64_t)room), &s);
    for (int64_t row = 0; row < rows; row++)
        if (tokens[row] < 0 || tokens[row] >= h->words || (parents && parents[base + row] >= base)) return 1;
    if (parents && !as_tree(parents, base + rows, &tree)) return 1;
    const int64_t unread = !fed ? rows : parents ? 0 : rows - 1; /* rows of which only keys and values are wanted */
#pragma omp parallel num_threads(threads)
    {
        const int id = omp_get_thread_num(), num = omp_get_num_threads();
        float *scores = (float *)(own + id * own_bytes(h, rows, S));
        bf16 *stream = (bf16 *)((char *)scores + scores_bytes(S)), *normed = stream + ALIGNED(2 * rows * size) / 2;
        if (!parents) {
            const int is_normed = h->features_norm || h->state_norms;
            for (int64_t row = 0; is_normed && row < rows; row++)
                norm_features(h, features + row * h->features, normed + row * h->features);
            product(&h->fuse, AS_IS, is_normed ? normed : features, rows, s.hidden, id, num);
#pragma omp barrier
        }
        for (int64_t row = 0; row < rows; row++) {
            bf16 *to = normed + 2 * row * size;
            const bf16 *hidden = parents ? fed + parents[base + row] * size : s.hidden + row * size;
            norm(h->embedding + tokens[row] * size, h->layers->norm, h->eps, size, to);
            norm(hidden, h->hidden_norm, h->eps, size, to + size);
            memcpy(stream + row * size, h->norm_before_residual ? to + size : hidden, 2 * size);
        }
        int64_t first = 0; /* of the rows that are still needed */
        for (int64_t l = 0; l < h->num_layers; l++) {
            const HeadLayer *layer = h->layers + l;
            bf16 *keys = cache[2 * l], *values = cache[2 * l + 1];
            if (l)
                for (int64_t row = 0; row < rows; row++)
                    norm(stream + row * size, layer->norm, h->eps, size, normed + row * size);
            product(&layer->qkv, AS_IS, normed, rows, s.qkv, id, num);
            if (l == h->num_layers - 1) first = unread;
#pragma omp barrier
            for (int64_t unit = rows * num_heads * id / num; unit < rows * num_heads * (id + 1) / num; unit++) {
                int64_t row = unit / num_heads, head = unit % num_heads, key = head - h->heads, value = key - h->kv;
                bf16 *from = s.qkv + unit * dim;
                const int64_t position = at + (parents ? tree.depth[base + row] : row), column = at + base + row;
                const float *c = cos + position * dim / 2, *d = sin + position * dim / 2;
                if (value >= 0) memcpy(values + (value * S + column) * dim, from, 2 * dim);
                else if (key >= 0) turn(from, layer->key_norm, h->eps, c, d, dim, keys + (key * S + column) * dim);
                else if (row >= first) turn(from, layer->query_norm, h->eps, c, d, dim, from);
            }
            const int64_t left = rows - first;
            if (!left) continue;
#pragma omp barrier
            const Attention attention =
                {keys, values, h->heads, h->kv, dim, S, layer->window, left, at + first, h->scale,
                    parents ? &tree : 0, base, 0};
            attend_all(&attention, s.qkv + first * width, width, s.mixed, scores, id, num);
#pragma omp barrier
            finish_layer(h, layer, &s, left, normed, stream + first * size, id, num);
        }
        const int64_t left = rows - unread;
        for (int64_t row = 0; row < left; row++)
            norm(stream + (unread + row) * size, h->norm, h->eps, size, normed + row * size);
        if (left && id == 0) {
            memcpy(last, normed, 2 * left * size);
            memcpy(fed + (parents ? base * size : 0), h->norm_output ? normed : stream + unread * size, 2 * left * size);
        }
        if (left && logits) product(&h->output, AS_IS, normed, left, logits, id, num);
    }
    return 0;
}

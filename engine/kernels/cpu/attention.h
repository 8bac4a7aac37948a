/* Attention of a step's rows over a static cache. A row looks at its own columns, no others, in their order; so its
   bits do not depend on the step's width
   nor on the cache's length, and a long cache costs nothing until it is full. Softmax in float32, weights never rounded
   to bfloat16. */
#pragma once
#include "vectors.h"

#define TOGETHER 4
#define PARTS (SLICE / LANES)

/* A step's rows as a tree: column `at` and on of a row are its path from the step's first row, itself included. */
#define MAX_TREE 64
typedef struct {
    int32_t depth[MAX_TREE];            /* of a row; the first has 0 */
    uint8_t path[MAX_TREE][MAX_TREE];   /* [row][depth] -> row */
} Tree;

/* parents [rows]: of each row but the first an earlier one. Returns 0 where there are too many rows, or a parent is not
   an earlier row. */
static __attribute__((unused)) int as_tree(const int32_t *parents, int64_t rows, Tree *tree) {
    if (rows > MAX_TREE) return 0;
    for (int64_t row = 0; row < rows; row++) {
        if (row && (parents[row] < 0 || parents[row] >= row)) return 0;
        int32_t depth = row ? tree->depth[parents[row]] + 1 : 0;
        if (row) memcpy(tree->path[row], tree->path[parents[row]], (size_t)depth);
        tree->depth[row] = depth;
        tree->path[row][depth] = (uint8_t)row;
    }
    return 1;
}

/* Rows of queries that share keys and values: where each begins and ends among the columns. Columns from `at` on lie in
   the cache in the order of the step's rows; path: null, or which row each of a row's own columns is; sink: one more
   score, of no value; -inf: none. */
typedef struct {
    const bf16 *query[TOGETHER];
    bf16 *out[TOGETHER];
    const uint8_t *path[TOGETHER];
    int64_t from[TOGETHER], to[TOGETHER], at;
    float sink[TOGETHER];
} Rows;

/* Where a column of a row lies in the cache. */
INLINE int64_t place(const Rows *of, int i, int64_t column) {
    return of->path[i] && column >= of->at ? of->at + of->path[i][column - of->at] : column;
}

/* The products of a query with sixteen keys; in place of keys that are not there, the last one's. */
INLINE Floats products(const bf16 *query, const bf16 *keys, int64_t num_keys, int64_t dim) {
    Floats sum[LANES];
    for (int first = 0; first < LANES; first += KEYS) {
        Floats its[KEYS];
        for (int j = 0; j < KEYS; j++) its[j] = zeros();
        for (int64_t e = 0; e < dim; e += 2 * LANES) {
            Pairs part = pairs(query + e);
            for (int j = 0; j < KEYS; j++)
                its[j] = dot2(its[j], pairs(keys +
                (num_keys >= LANES || first + j < num_keys ? first + j : num_keys - 1) * dim + e), part);
        }
        for (int j = 0; j < KEYS; j++) sum[first + j] = its[j];
    }
    return sums(sum);
}

/* Of a score, so far below the largest one; NaN stays NaN. */
INLINE Floats weight_of(Floats below) { return unless_below(below, all(-87.0f), exponential(below)); }

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Adds the weighted values of some columns, of their numbers from `e` on, `parts` times sixteen; weights: of columns
   from `first` on. Unless all rows see them all,
   a row leaves out what it may not look at, whatever is there: 0 * NaN is NaN. */
INLINE void mix_columns(const int rows, const int parts, const int all_seen, const Rows *of, const bf16 *values,
    int64_t dim, int64_t e, int64_t from, int64_t to, int64_t first, const float *weights,
                        int64_t room, Floats (*sum)[PARTS]) {
    for (int64_t column = from; column < to; column++) {
        Floats value[PARTS];
        for (int j = 0; j < parts; j++) value[j] = widen(values + column * dim + e + j * LANES);
        for (int i = 0; i < rows; i++) {
            if (!all_seen && (column < of->from[i] || column >= of->to[i])) continue;
            Floats weight = all(weights[i * room + column - first]);
            for (int j = 0; j < parts; j++) sum[i][j] = fused(weight, value[j], sum[i][j]);
        }
    }
}

/* The same of columns that rows may have in different places. */
INLINE void mix_own(const int rows, const int parts, const Rows *of, const bf16 *values, int64_t dim, int64_t e,
    int64_t from, int64_t to, int64_t first, const float *weights, int64_t room, Floats (*sum)[PARTS]) {
    for (int64_t column = from; column < to; column++)
        for (int i = 0; i < rows; i++) {
            if (column < of->from[i] || column >= of->to[i]) continue;
            const bf16 *value = values + place(of, i, column) * dim + e;
            Floats weight = all(weights[i * room + column - first]);
            for (int j = 0; j < parts; j++) sum[i][j] = fused(weight, widen(value + j * LANES), sum[i][j]);
        }
}

/* The weighted sums of values: of the columns that all rows see, and before and after them of those that some do. */
INLINE void mix(const int rows, const int parts, const Rows *of, const bf16 *values, int64_t dim, int64_t e,
    int64_t first, const float *weights, int64_t room, const Floats *factor) {
    Floats sum[TOGETHER][PARTS];
    int64_t from = of->from[0], to = of->to[0], all_from = from, all_to = to;
    for (int i = 0; i < rows; i++) {
        from = least(from, of->from[i]), all_from = most(all_from, of->from[i]);
        to = most(to, of->to[i]), all_to = least(all_to, of->to[i]);
        for (int j = 0; j < parts; j++) sum[i][j] = zeros();
    }
    for (int i = 0; i < rows; i++)
        if (of->path[i]) all_from = least(all_from, of->at), all_to = least(all_to, of->at);
    all_from = least(all_from, to), all_to = most(all_to, all_from);
    mix_columns(rows, parts, 0, of, values, dim, e, from, all_from, first, weights, room, sum);
    mix_columns(rows, parts, 1, of, values, dim, e, all_from, all_to, first, weights, room, sum);
    mix_own(rows, parts, of, values, dim, e, all_to, to, first, weights, room, sum);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < parts; j++) narrow(of->out[i] + e + j * LANES, times(sum[i][j], factor[i]));
}

/* keys, values [S, dim]; scores: room for [rows, S rounded up to 16]. dim is a multiple of 32. Blocks of columns begin
   at multiples of 16, for all rows alike. */
INLINE void attend(const int rows, const Rows *of, const bf16 *keys, const bf16 *values, int64_t dim, int64_t S,
    float scale, float *scores) {
    const int64_t room = (S + LANES - 1) & ~(int64_t)(LANES - 1);
    int64_t from = of->from[0], to = of->to[0];
    for (int i = 1; i < rows; i++) from = least(from, of->from[i]), to = most(to, of->to[i]);
    from &= ~(int64_t)(LANES - 1);
    const Floats none = all(-INFINITY);
    Floats top[TOGETHER], sum[TOGETHER];
    bf16 own[LANES * dim];
    for (int i = 0; i < rows; i++) top[i] = all(of->sink[i]);
    for (int64_t column = from; column < to; column += LANES) {
        for (int i = 0; i < rows; i++) {
            const bf16 *first = keys + column * dim;
            int64_t there = S - column;
            if (of->path[i] && column + LANES > of->at) {
                there = most(1, least(LANES, of->to[i] - column)); /* a row that has none of them is masked below */
                for (int64_t j = 0; j < there; j++)
                    memcpy(own + j * dim, keys + (column + j < of->to[i] ? place(of, i, column + j) : 0) * dim,
                        2 * dim);
                first = own;
            }
            Floats product = there >= LANES ? products(of->query[i], first, LANES, dim) :
                products(of->query[i], first, there, dim);
            Floats score = within(times(product, all(scale)), none, (int)column, (int)of->from[i], (int)of->to[i]);
            top[i] = larger(top[i], score);
            put(scores + i * room + column - from, score);
        }
    }
    for (int i = 0; i < rows; i++) {
        Floats largest = all(largest_of(top[i]));
        sum[i] = times(weight_of(minus(all(of->sink[i]), largest)), all(1.0f / LANES)); /* a power of two: exact */
        for (int64_t column = 0; column < to - from; column += LANES) {
            Floats weight = weight_of(minus(floats(scores + i * room + column), largest));
            sum[i] = plus(sum[i], weight);
            put(scores + i * room + column, weight);
        }
        sum[i] = all(1.0f / sum_of(sum[i]));
    }
    for (int64_t e = 0; e < dim; e += SLICE) {
        if (dim - e >= SLICE) mix(rows, PARTS, of, values, dim, e, from, scores, room, sum);
        else mix(rows, PARTS / 2, of, values, dim, e, from, scores, room, sum);
    }
}

/* keys, values [kv, S, dim]; window 0: none; num rows of a step, the first at position `at`; tree: null where each row
   follows the one before; else the rows are those from `base` on of a tree whose first is at position `at`; sinks: null
   or [heads]. */
typedef struct {
    const bf16 *keys, *values;
    int64_t heads, kv, dim, S, window, num, at;
    float scale;
    const Tree *tree;
    int64_t base;
    const float *sinks;
} Attention;

/* Thread `id`: its share of the rows of all heads. query [num, heads, dim] at a stride, out [num, heads, dim]. */
static __attribute__((unused)) void attend_all(const Attention *a, const bf16 *query, int64_t stride, bf16 *out,
    float *scores, int id, int threads) {
    const int64_t total = a->heads * a->num, shared = total / a->kv, end = total * (id + 1) / threads;
    for (int64_t first = total * id / threads; first < end;) {
        const int64_t group = first / shared;
        const int rows = (int)least(TOGETHER, least((group + 1) * shared, end) - first);
        Rows of = {.at = a->at};
        for (int i = 0; i < rows; i++) {
            int64_t head = (first + i) / a->num, row = (first + i) % a->num;
            of.query[i] = query + row * stride + head * a->dim;
            of.out[i] = out + (row * a->heads + head) * a->dim;
            of.path[i] = a->tree ? a->tree->path[a->base + row] : 0;
            of.to[i] = a->at + (a->tree ? a->tree->depth[a->base + row] : row) + 1;
            of.from[i] = a->window > 0 && of.to[i] > a->window ? of.to[i] - a->window : 0;
            of.sink[i] = a->sinks ? a->sinks[head] : -INFINITY;
        }
        const bf16 *keys = a->keys + group * a->S * a->dim, *values = a->values + group * a->S * a->dim;
        switch (rows) {
        case 1: attend(1, &of, keys, values, a->dim, a->S, a->scale, scores); break;
        case 2: attend(2, &of, keys, values, a->dim, a->S, a->scale, scores); break;
        case 3: attend(3, &of, keys, values, a->dim, a->S, a->scale, scores); break;
        default: attend(4, &of, keys, values, a->dim, a->S, a->scale, scores);
        }
        first += rows;
    }
}

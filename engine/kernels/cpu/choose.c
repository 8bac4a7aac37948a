/* The choice of `sampler.py` from rows of bfloat16 logits: a scan at the speed of the caches, and noise for what is in
   reach of it. What is computed here decides
   nothing that rounding could: where the two best scores are closer than any rounding, the row is left to `sampler.py`,
   whose bits are the ones that count. */
#include "vectors.h"
#if HAS_AVX512
#include "hash.h"

#define WIDE 32     /* columns of a vector of 16-bit numbers */
#define GROUP 16    /* vectors whose maximum is kept */
#define MOST 4194304 /* columns: so that the maxima fit the stack */
#define AHEAD 4096    /* bytes: the rows have just been written, and pushed out of the caches by the weights */
#define INFINITY_KEY 0x7f80

/* tokens [num]: what the columns stand for; null: themselves. seed: through splitmix64. temperature 0: the first of the
   largest. max_noise, near: see sampler.py. */
typedef struct {
    const int32_t *tokens;
    int64_t num;
    uint64_t seed;
    float temperature, max_noise, near;
} Chooser;

/* A row's numbers as 16-bit integers in their order; -0 is -1, infinities are +- INFINITY_KEY (-1), what is beyond them
   is NaN. */
INLINE __m512i keys(const bf16 *row, int64_t left) {
    __m512i bits = left >= WIDE ? _mm512_loadu_si512(row) : left <= 0 ? _mm512_set1_epi16((short)0xff80) :
        _mm512_mask_loadu_epi16(_mm512_set1_epi16((short)0xff80), (1u << left) - 1, row);
    return _mm512_ternarylogic_epi32(bits, _mm512_srai_epi16(bits, 15), _mm512_set1_epi16(0x7fff), 0x78);
}

INLINE int in_order(int bits) { return (int16_t)(bits ^ ((int16_t)bits < 0 ? 0x7fff : 0)); }

INLINE float number(int key) {
    uint32_t bits = (uint32_t)(uint16_t)in_order(key) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A key that is not above that of any number from `least` on. */
INLINE int key_below(float least) {
    uint32_t bits;
    memcpy(&bits, &least, sizeof bits);
    int key = in_order((int)(bits >> 16)) - 2;
    return key < -INFINITY_KEY ? -INFINITY_KEY : key;
}

INLINE int reduce(__m512i v, int most) {
    int16_t parts[WIDE];
    _mm512_storeu_si512(parts, v);
    int best = parts[0];
    for (int i = 1; i < WIDE; i++) best = (parts[i] > best) == most ? parts[i] : best;
    return best;
}

/* The largest key, and the maxima of every group; below -INFINITY_KEY - 1: there is a NaN. */
static int scan(const bf16 *row, int64_t num, __m512i *maxima) {
    __m512i most = _mm512_set1_epi16(-32768), least = _mm512_set1_epi16(32767);
    for (int64_t at = 0; at < num; at += WIDE * GROUP) {
        __m512i its = _mm512_set1_epi16(-32768);
        if (num - at >= WIDE * GROUP) {
            for (int i = 0; i < GROUP; i++) {
                __m512i key = keys(row + at + i * WIDE, WIDE);
                _mm_prefetch((const char *)(row + at + i * WIDE) + AHEAD, _MM_HINT_T0);
                its = _mm512_max_epi16(its, key), least = _mm512_min_epi16(least, key);
            }
        } else {
            for (int i = 0; i < GROUP; i++) {
                __m512i key = keys(row + at + i * WIDE, num - at - i * WIDE);
                its = _mm512_max_epi16(its, key), least = _mm512_min_epi16(least, key);
            }
        }
        maxima[at / (WIDE * GROUP)] = its;
        most = _mm512_max_epi16(most, its);
    }
    int top = reduce(most, 1);
    return top > INFINITY_KEY || reduce(least, 0) < -INFINITY_KEY - 1 ? -32768 : top;
}

static int64_t first_of(const bf16 *row, int64_t num, const __m512i *maxima, int top) {
    const __m512i least = _mm512_set1_epi16((short)(top == 0 ? -1 : top)); /* 0 and -0 are equal */
    for (int64_t at = 0; at < num; at += WIDE * GROUP) {
        if (!_mm512_cmpge_epi16_mask(maxima[at / (WIDE * GROUP)], least)) continue;
        for (int64_t from = at;; from += WIDE) {
            __mmask32 found = _mm512_cmpge_epi16_mask(keys(row + from, num - from), least);
            if (found) return from + __builtin_ctz(found);
        }
    }
    return -1;
}

/* For x > 0, no subnormal number. Relative error below 1e-6. */
INLINE __m512 logarithm(__m512 x) {
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero), n =
        _mm512_sub_ps(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
    __m512 s = _mm512_div_ps(_mm512_sub_ps(m, all(1.0f)), _mm512_add_ps(m, all(1.0f))), q = _mm512_mul_ps(s, s);
    __m512 sum = _mm512_fmadd_ps(all(2.0f / 9), q, all(2.0f / 7));
    sum = _mm512_fmadd_ps(sum, q, all(2.0f / 5));
    sum = _mm512_fmadd_ps(sum, q, all(2.0f / 3));
    sum = _mm512_fmadd_ps(sum, q, all(2.0f));
    return _mm512_fmadd_ps(n, all(0.693147181f), _mm512_mul_ps(sum, s));
}

/* `uniform` of noise.py, bit for bit. */
INLINE __m512 uniform(__m512i tokens, uint64_t key) {
    __m512i x = mixed(_mm512_add_epi32(mixed(_mm512_xor_si512(tokens, _mm512_set1_epi32((int)(uint32_t)key))),
        _mm512_set1_epi32((int)(key >> 32))));
    __m512 u = _mm512_cvtepi32_ps(x);
    u = _mm512_mask_add_ps(u, _mm512_movepi32_mask(x), u, all(4294967296.0f));
    return _mm512_min_ps(_mm512_mul_ps(_mm512_add_ps(u, all(0.5f)), all(0x1p-32f)), all(1 - 0x1p-24f));
}

/* `gumbel` of noise.py but for rounding: -log(-log1p(-u)). */
INLINE __m512 gumbel(__m512 u) {
    __m512 w = _mm512_sub_ps(all(1.0f), u), lost = _mm512_sub_ps(all(1.0f), w), none = _mm512_setzero_ps();
    __m512 l = _mm512_mask_div_ps(u, _mm512_cmp_ps_mask(lost, none, _CMP_NEQ_UQ),
        _mm512_mul_ps(_mm512_sub_ps(none, logarithm(w)), u), lost);
    return _mm512_sub_ps(none, logarithm(l));
}

/* Of the columns looked at, in each of 16 lanes: the best score and its column, and the next best score. Scores below
   `floor`, which is `slack` below the best of all,
   may be missing. */
typedef struct {
    __m512 best, next;
    __m512i column;
    float floor, slack;
} Best;

INLINE void look(Best *b, const Chooser *c, uint64_t key, const int32_t *columns, const float *values, int64_t num) {
    __mmask16 there = num >= LANES ? 0xffff : (__mmask16)((1u << num) - 1);
    __m512i column = _mm512_maskz_loadu_epi32(there, columns), tokens = column;
    if (c->tokens) tokens = _mm512_i32gather_epi32(column, c->tokens, 4);
    __m512 u = uniform(tokens, key), value =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(there, values), all(1 / c->temperature));
    /* noise is below -log(u) */
    there = _mm512_mask_cmp_ps_mask(there, _mm512_fnmadd_ps(_mm512_getexp_ps(u), all(0.693148f), value), all(b->floor),
        _CMP_NLT_UQ);
    if (!there) return;
    __m512 score = _mm512_mask_add_ps(all(-INFINITY), there, value, gumbel(u));
    __mmask16 better = _mm512_cmp_ps_mask(score, b->best, _CMP_GT_OQ);
    b->next = _mm512_max_ps(b->next, _mm512_min_ps(score, b->best));
    b->column = _mm512_mask_mov_epi32(b->column, better, column);
    b->best = _mm512_max_ps(b->best, score);
    if (better) b->floor = fmaxf(b->floor, _mm512_reduce_max_ps(b->best) - b->slack);
}

/* All columns whose key is at least that. */
static Best among(const Chooser *c, uint64_t noise, const bf16 *row, const __m512i *maxima, int key, float floor,
    float slack) {
    Best b = {all(-INFINITY), all(-INFINITY), _mm512_setzero_si512(), floor, slack};
    int32_t columns[WIDE * GROUP + WIDE];
    float values[WIDE * GROUP + WIDE];
    const __m512i least = _mm512_set1_epi16((short)key), places =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int64_t count = 0;
    for (int64_t at = 0; at < c->num; at += WIDE * GROUP) {
        if (!_mm512_cmpge_epi16_mask(maxima[at / (WIDE * GROUP)], least)) continue;
        __mmask32 found[GROUP];
        int64_t which[GROUP], num = 0;
        /* no branch that depends on what is found: half of them would be guessed wrong */
        for (int i = 0; i < GROUP; i++) {
            int64_t from = at + i * WIDE, left = c->num - from;
            found[num] = _mm512_cmpge_epi16_mask(keys(row + from, left), least) & (left >= WIDE ? 0xffffffff :
                left > 0 ? (1u << left) - 1 : 0);
            which[num] = from;
            num += found[num] != 0;
        }
        for (int i = 0; i < 2 * num; i++) {
            int64_t from = which[i / 2] + i % 2 * LANES;
            __mmask16 its = (__mmask16)(found[i / 2] >> i % 2 * LANES);
            __m512 value = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(its,
                row + from)), 16));
            _mm512_storeu_si512(columns + count,
                _mm512_maskz_compress_epi32(its, _mm512_add_epi32(places, _mm512_set1_epi32((int)from))));
            _mm512_storeu_ps(values + count, _mm512_maskz_compress_ps(its, value));
            count += __builtin_popcount(its);
        }
        int64_t done = 0;
        for (; count - done >= LANES; done += LANES) look(&b, c, noise, columns + done, values + done, LANES);
        count -= done;
        _mm512_storeu_si512(columns, _mm512_loadu_si512(columns + done));
        _mm512_storeu_ps(values, _mm512_loadu_ps(values + done));
    }
    if (count) look(&b, c, noise, columns, values, count);
    return b;
}

/* The column, or -1 where another is to decide: no numbers, an infinite maximum, scores too close. */
static int64_t choose(const Chooser *c, const bf16 *row, int64_t position) {
    __m512i maxima[c->num / (WIDE * GROUP) + 1];
    int top = scan(row, c->num, maxima);
    if (top < -INFINITY_KEY - 1) return -1;
    if (c->temperature == 0) return first_of(row, c->num, maxima, top);
    float best = number(top) / c->temperature;
    if (!(fabsf(best) < 1e6f)) return -1;
    const uint64_t noise = splitmix64(c->seed ^ (uint64_t)position);
    const float slack = 4e-6f * (fabsf(best) + 64); /* many times what rounding does to two scores, here and there */
    Best b = among(c, noise, row, maxima, key_below((best - c->near) * c->temperature), -INFINITY, slack);
    b = among(c, noise, row, maxima, key_below((_mm512_reduce_max_ps(b.best) - c->max_noise) * c->temperature), b.floor,
        slack);
    const float first = _mm512_reduce_max_ps(b.best);
    const int lane = __builtin_ctz(_mm512_cmp_ps_mask(b.best, all(first), _CMP_EQ_OQ) | 0x10000);
    const float second = fmaxf(_mm512_reduce_max_ps(b.next),
        _mm512_mask_reduce_max_ps((__mmask16)(0xffff & ~(1u << lane)), b.best));
    if (lane == LANES || !(first - second > slack)) return -1;
    int32_t columns[LANES];
    _mm512_storeu_si512(columns, b.column);
    return columns[lane];
}

/* The choices of rows [num, c->num] whose first stands at `position`, one after the other, while each is what a draft
   [num - 1] has; the last may be another.
   Returns how many were made: all that are due, or those before the first that another is to make. */
int64_t photofinish_choose(const Chooser *c, const bf16 *rows, int64_t num, int64_t stride, const int64_t *draft,
    int64_t position, int64_t *chosen) {
    if (c->num < 1 || c->num > MOST) return 0;
    for (int64_t i = 0; i < num; i++) {
        chosen[i] = choose(c, rows + i * stride, position + i);
        if (chosen[i] < 0) return i;
        if (i == num - 1 || chosen[i] != draft[i]) return i + 1;
    }
    return num;
}
#endif

/* Many messages at once, one in each lane of a vector: the body of four kernels.
 *
 * The file that includes this one has defined, for its instruction set:
 *   TARGET            the attribute that lets the compiler use it
 *   LANES             how many words a vector holds
 *   BUNDLES           1, or 2 to hash two vectors side by side: while one waits for a result the
 *                     other computes, if there are registers for both
 *   lanes             the vector type, of uint32_t, by the compiler's vector extension
 *   ROTATE(x, n)      a rotation right
 *   XOR3(x, y, z), CHOOSE(e, f, g), MAJORITY(a, b, c)
 *   HEX(x)            the hex digit of each byte, which is below 16
 *   FORM(x)           an empty instruction that changes the vector x, for all the compiler knows
 *   ZEROS(x)          which words are zero, a bit for each
 *   KERNEL, NAME, USABLE   the kernel's variable, name and test
 */
#include <string.h>

#include "kernels.h"
#include "message.h"

#define INLINE static inline __attribute__((always_inline)) TARGET

typedef struct {
    lanes of[BUNDLES];
} row;

#if BUNDLES == 1
#define EACH(...) do { enum { i = 0 }; __VA_ARGS__; } while (0)
#else
#define EACH(...) \
    do { { enum { i = 0 }; __VA_ARGS__; } { enum { i = 1 }; __VA_ARGS__; } } while (0)
#endif

INLINE row same(uint32_t word)
{
    row r;
    EACH(r.of[i] = (lanes){0} + word);
    return r;
}

INLINE row load(const uint32_t *from)
{
    row r;
    memcpy(&r, from, sizeof r);
    return r;
}

INLINE void store(uint32_t *to, row x)
{
    memcpy(to, &x, sizeof x);
}

INLINE row add(row x, row y)
{
    EACH(x.of[i] += y.of[i]);
    return x;
}

INLINE row and(row x, uint32_t mask)
{
    EACH(x.of[i] &= mask);
    return x;
}

INLINE row or(row x, row y)
{
    EACH(x.of[i] |= y.of[i]);
    return x;
}

INLINE row shift_right(row x, int n)
{
    EACH(x.of[i] >>= n);
    return x;
}

INLINE row sigma_0(row x)
{
    EACH(x.of[i] = XOR3(ROTATE(x.of[i], 7), ROTATE(x.of[i], 18), x.of[i] >> 3));
    return x;
}

INLINE row sigma_1(row x)
{
    EACH(x.of[i] = XOR3(ROTATE(x.of[i], 17), ROTATE(x.of[i], 19), x.of[i] >> 10));
    return x;
}

INLINE row big_sigma_0(row x)
{
    EACH(x.of[i] = XOR3(ROTATE(x.of[i], 2), ROTATE(x.of[i], 13), ROTATE(x.of[i], 22)));
    return x;
}

INLINE row big_sigma_1(row x)
{
    EACH(x.of[i] = XOR3(ROTATE(x.of[i], 6), ROTATE(x.of[i], 11), ROTATE(x.of[i], 25)));
    return x;
}

INLINE row choose(row e, row f, row g)
{
    EACH(e.of[i] = CHOOSE(e.of[i], f.of[i], g.of[i]));
    return e;
}

INLINE row majority(row a, row b, row c)
{
    EACH(a.of[i] = MAJORITY(a.of[i], b.of[i], c.of[i]));
    return a;
}

INLINE row hex(row nibbles)
{
    EACH(nibbles.of[i] = HEX(nibbles.of[i]));
    return nibbles;
}

INLINE uint32_t zeros(row x)
{
    uint32_t which = 0;
    EACH(which |= (uint32_t)ZEROS(x.of[i]) << i * LANES);
    return which;
}

/* A sum that the compiler must form as it is written. */
INLINE row formed(row x)
{
    EACH(FORM(x.of[i]));
    return x;
}

/* A round leaves its state one place further: the caller names the variables anew instead of
 * moving them.
 *
 * The next round waits for `d`, and `d` for big_sigma_1(e), which takes longest: all else is
 * summed up before that comes, at the cost of one more addition. Compilers know of sums only
 * that their order does not matter, so they are told. */
#define ROUND(a, b, c, d, e, f, g, h, wk)                                  \
    do {                                                                   \
        row part = formed(add(add(h, wk), choose(e, f, g)));               \
        row last = big_sigma_1(e), sum;                                    \
        d = add(formed(add(d, part)), last);                               \
        sum = formed(add(part, last));                                     \
        h = add(sum, add(big_sigma_0(a), majority(a, b, c)));              \
    } while (0)

#define EIGHT_ROUNDS(t, WK)                        \
    ROUND(a, b, c, d, e, f, g, h, WK((t) + 0));    \
    ROUND(h, a, b, c, d, e, f, g, WK((t) + 1));    \
    ROUND(g, h, a, b, c, d, e, f, WK((t) + 2));    \
    ROUND(f, g, h, a, b, c, d, e, WK((t) + 3));    \
    ROUND(e, f, g, h, a, b, c, d, WK((t) + 4));    \
    ROUND(d, e, f, g, h, a, b, c, WK((t) + 5));    \
    ROUND(c, d, e, f, g, h, a, b, WK((t) + 6));    \
    ROUND(b, c, d, e, f, g, h, a, WK((t) + 7))

/* Not all rounds are written out: the code of a whole hash would be larger than the cache that
 * instructions come from, and the processor would wait for its own program. Eight rounds bring
 * every variable back to its place, sixteen every word of the schedule. */
#define ROLLED _Pragma("GCC unroll 1") for

struct rows {
    row of[STATE_WORDS];
};

/* Take the state through a block whose schedule is the same in all lanes: the words come from
 * memory, `stride` words apart, and no lane computes a schedule of its own. This is every block
 * but the first. */
INLINE struct rows shared_block(struct rows s, const uint32_t *wk, size_t stride)
{
    row a = s.of[0], b = s.of[1], c = s.of[2], d = s.of[3];
    row e = s.of[4], f = s.of[5], g = s.of[6], h = s.of[7];
#define SHARED(t) same(wk[(t) * stride])
    ROLLED (int t = 0; t < ROUNDS; t += 8, wk += 8 * stride) {
        EIGHT_ROUNDS(0, SHARED);
    }
#undef SHARED
    return (struct rows){{
        add(s.of[0], a), add(s.of[1], b), add(s.of[2], c), add(s.of[3], d),
        add(s.of[4], e), add(s.of[5], f), add(s.of[6], g), add(s.of[7], h),
    }};
}

/* Word t of the first block's schedule, up to word 31. `first` and `varying` are constants
 * wherever this is inlined, so only the terms that do vary from lane to lane are left; the sum of
 * the others was computed once. */
INLINE row scheduled(const struct message *m, row w[BLOCK_WORDS], unsigned t, unsigned first,
                     unsigned varying)
{
#define VARIES(t) ((t) >= BLOCK_WORDS || (t) - first < varying)
    if (t < BLOCK_WORDS)
        return VARIES(t) ? add(w[t], same(sha256_k[t])) : same(m->first_wk[t]);
    row sum = same(m->fixed[t - 16]);
    if (VARIES(t - 16))
        sum = add(sum, w[t - 16]);
    if (VARIES(t - 15))
        sum = add(sum, sigma_0(w[(t - 15) % 16]));
    if (VARIES(t - 7))
        sum = add(sum, w[(t - 7) % 16]);
    if (VARIES(t - 2))
        sum = add(sum, sigma_1(w[(t - 2) % 16]));
    w[t % 16] = sum;
    return add(sum, same(sha256_k[t]));
#undef VARIES
}

/* A word of the schedule from word 32 on, in place of the one sixteen words before. */
INLINE row next_word(row w[BLOCK_WORDS], unsigned t, uint32_t k)
{
    row sum = add(add(w[t], sigma_0(w[(t + 1) % 16])),
                  add(w[(t + 9) % 16], sigma_1(w[(t + 14) % 16])));
    w[t] = sum;
    return add(sum, same(k));
}

/* Take the state through the first block, of which `varying` words from word `first` on differ
 * between the lanes. The rounds before those were done once, and the round of the first of them
 * but for adding it. */
INLINE struct rows first_block(const struct message *m, const row *words, unsigned first,
                               unsigned varying)
{
    row w[BLOCK_WORDS];
    for (unsigned word = 0; word < varying; word++)
        w[first + word] = words[word];
    /* Each round renames the variables, the rounds done before as well. */
#define BEGUN(word) same(m->begun[((word) + first + 1) % STATE_WORDS])
    row a = BEGUN(0), b = BEGUN(1), c = BEGUN(2), d = BEGUN(3);
    row e = BEGUN(4), f = BEGUN(5), g = BEGUN(6), h = BEGUN(7);
#undef BEGUN
#define OWN(t) scheduled(m, w, t, first, varying)
    if (first == 0) {
        d = add(d, w[0]);
        h = add(h, w[0]);
        ROUND(h, a, b, c, d, e, f, g, OWN(1));
    } else {
        c = add(c, w[1]);
        g = add(g, w[1]);
    }
    ROUND(g, h, a, b, c, d, e, f, OWN(2));
    ROUND(f, g, h, a, b, c, d, e, OWN(3));
    ROUND(e, f, g, h, a, b, c, d, OWN(4));
    ROUND(d, e, f, g, h, a, b, c, OWN(5));
    ROUND(c, d, e, f, g, h, a, b, OWN(6));
    ROUND(b, c, d, e, f, g, h, a, OWN(7));
    EIGHT_ROUNDS(8, OWN);
    EIGHT_ROUNDS(16, OWN); EIGHT_ROUNDS(24, OWN);
#undef OWN
#define NEXT(i) next_word(w, i, k[i])
    const uint32_t *k = sha256_k + 2 * BLOCK_WORDS;
    ROLLED (; k < sha256_k + ROUNDS; k += BLOCK_WORDS) {
        EIGHT_ROUNDS(0, NEXT); EIGHT_ROUNDS(8, NEXT);
    }
#undef NEXT
    return (struct rows){{
        add(same(sha256_start[0]), a), add(same(sha256_start[1]), b),
        add(same(sha256_start[2]), c), add(same(sha256_start[3]), d),
        add(same(sha256_start[4]), e), add(same(sha256_start[5]), f),
        add(same(sha256_start[6]), g), add(same(sha256_start[7]), h),
    }};
}

/* Hash the lanes' messages; give the first two words of the digests. */
INLINE void hash(const struct message *m, const row *words, unsigned first, unsigned varying,
                 row *hi, row *lo)
{
    struct rows s = first_block(m, words, first, varying);
    for (size_t block = 0; block < m->kept_blocks; block++)
        s = shared_block(s, m->wk[block], 1);
    *hi = and(s.of[0], m->mask_hi);
    *lo = and(s.of[1], m->mask_lo);
}

/* Spell each lane's place as spell_place() does. */
INLINE void spell(row hi, row lo, unsigned varying, row words[4])
{
    words[0] = hex(and(hi, 0x0f0f0f0f));
    words[1] = hex(and(shift_right(hi, 4), 0x0f0f0f0f));
    if (varying == 4) {
        words[2] = hex(and(lo, 0x0f0f0f0f));
        words[3] = hex(and(shift_right(lo, 4), 0x0f0f0f0f));
    } else {
        row odd = and(shift_right(lo, 4), 0x0f0f0000);
        words[2] = hex(or(and(lo, 0x0f0f0000), shift_right(odd, 16)));
    }
}

INLINE unsigned walk_with(const struct message *m, struct places *at, unsigned most,
                          struct arrivals *seen, unsigned first, unsigned varying)
{
    row hi = load(at->hi), lo = load(at->lo), words[4];
    unsigned steps = 0;
    seen->count = 0;
    do {
        /* Everything read from the message is the same in each step. Unless told that memory
         * may have changed, compilers would keep dozens of broadcast words ready outside the
         * loop, where no register is left for them. */
        __asm__ volatile("" ::: "memory");
        spell(hi, lo, varying, words);
        hash(m, words, first, varying, &hi, &lo);
        steps++;
        uint32_t arrived = zeros(and(hi, m->point_mask));
        if (arrived) {
            struct places *there = note_arrival(seen, steps, arrived);
            store(there->hi, hi);
            store(there->lo, lo);
        }
    } while (steps < most && seen->count < MOST_ARRIVALS);
    store(at->hi, hi);
    store(at->lo, lo);
    return steps;
}

INLINE void count_with(const struct message *m, uint64_t from, struct places *out,
                       unsigned first, unsigned varying)
{
    static const uint32_t last_digits[16] = {
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    };
    /* Sixteen nonces in a row differ in their last digit alone. */
    unsigned last = m->count_at + COUNT_DIGITS - 1;
    int shift = 8 * (3 - (int)(last % 4));
    uint32_t fixed[BUNDLES][4];
    lanes varying_digit[BUNDLES];
    EACH(
        count_words(m, from + i * LANES, fixed[i]);
        memcpy(&varying_digit[i], last_digits + (from + i * LANES) % 16, sizeof(lanes));
    );
    row words[4], hi, lo;
    for (unsigned word = 0; word < varying; word++) {
        EACH(words[word].of[i] = (lanes){0} + fixed[i][first + word]);
        if (first + word == last / 4)
            EACH(words[word].of[i] |= varying_digit[i] << shift);
    }
    hash(m, words, first, varying, &hi, &lo);
    store(out->hi, hi);
    store(out->lo, lo);
}

TARGET static unsigned walk(const struct message *m, struct places *at, unsigned most,
                            struct arrivals *seen)
{
    switch (m->layout) {
    case SALT_AND_TWELVE:
        return walk_with(m, at, most, seen, 1, 3);
    case TWELVE:
        return walk_with(m, at, most, seen, 0, 3);
    default:
        return walk_with(m, at, most, seen, 0, 4);
    }
}

TARGET static void count(const struct message *m, uint64_t from, struct places *out)
{
    if (m->layout == SALT_AND_TWELVE)
        count_with(m, from, out, 1, 3);
    else
        count_with(m, from, out, 0, 3);
}

/* The schedules of blocks in a row, one in each lane: long data have their schedules computed as
 * many at a time as there are lanes, and then used by all lanes one after the other. */
INLINE void expand_blocks(const uint8_t *blocks, uint32_t wk[ROUNDS][LANES])
{
    lanes w[ROUNDS];
    for (int t = 0; t < BLOCK_WORDS; t++)
        for (int lane = 0; lane < LANES; lane++)
            w[t][lane] = read_word(blocks + lane * BLOCK_BYTES + 4 * t);
    for (int t = BLOCK_WORDS; t < ROUNDS; t++) {
        lanes before = w[t - 15], after = w[t - 2];
        before = XOR3(ROTATE(before, 7), ROTATE(before, 18), before >> 3);
        after = XOR3(ROTATE(after, 17), ROTATE(after, 19), after >> 10);
        w[t] = after + w[t - 7] + before + w[t - 16];
    }
    for (int t = 0; t < ROUNDS; t++) {
        lanes sum = w[t] + sha256_k[t];
        memcpy(wk[t], &sum, sizeof sum);
    }
}

/* The same word of each lane's state, and back. */
INLINE struct rows gather(uint32_t (*states)[STATE_WORDS])
{
    struct rows s;
    uint32_t column[LANES * BUNDLES];
    for (int word = 0; word < STATE_WORDS; word++) {
        for (int lane = 0; lane < LANES * BUNDLES; lane++)
            column[lane] = states[lane][word];
        s.of[word] = load(column);
    }
    return s;
}

INLINE void scatter(struct rows s, uint32_t (*states)[STATE_WORDS])
{
    uint32_t column[LANES * BUNDLES];
    for (int word = 0; word < STATE_WORDS; word++) {
        store(column, s.of[word]);
        for (int lane = 0; lane < LANES * BUNDLES; lane++)
            states[lane][word] = column[lane];
    }
}

/* Take the state through a block that is another one in each lane. */
INLINE struct rows own_block(struct rows s, row w[BLOCK_WORDS])
{
    row a = s.of[0], b = s.of[1], c = s.of[2], d = s.of[3];
    row e = s.of[4], f = s.of[5], g = s.of[6], h = s.of[7];
    const uint32_t *k = sha256_k;
#define READ(i) add(w[i], same(k[i]))
    EIGHT_ROUNDS(0, READ); EIGHT_ROUNDS(8, READ);
#undef READ
#define NEXT(i) next_word(w, i, k[i])
    k += BLOCK_WORDS;
    ROLLED (; k < sha256_k + ROUNDS; k += BLOCK_WORDS) {
        EIGHT_ROUNDS(0, NEXT); EIGHT_ROUNDS(8, NEXT);
    }
#undef NEXT
    return (struct rows){{
        add(s.of[0], a), add(s.of[1], b), add(s.of[2], c), add(s.of[3], d),
        add(s.of[4], e), add(s.of[5], f), add(s.of[6], g), add(s.of[7], h),
    }};
}

TARGET static void each(uint32_t (*states)[STATE_WORDS], const uint8_t *const *blocks,
                        size_t count)
{
    struct rows s = gather(states);
    row w[BLOCK_WORDS];
    uint32_t column[LANES * BUNDLES];
    for (size_t at = 0; at < count * BLOCK_BYTES; at += BLOCK_BYTES) {
        for (int t = 0; t < BLOCK_WORDS; t++) {
            for (int lane = 0; lane < LANES * BUNDLES; lane++)
                column[lane] = read_word(blocks[lane] + at + 4 * t);
            w[t] = load(column);
        }
        s = own_block(s, w);
    }
    scatter(s, states);
}

TARGET static void stream(uint32_t (*states)[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    struct rows s = gather(states);
    uint32_t wk[ROUNDS][LANES], last_wk[ROUNDS];
    for (; count >= LANES; count -= LANES, blocks += LANES * BLOCK_BYTES) {
        expand_blocks(blocks, wk);
        for (int block = 0; block < LANES; block++)
            s = shared_block(s, &wk[0][block], LANES);
    }
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        expand_block(blocks, last_wk);
        s = shared_block(s, last_wk, 1);
    }
    scatter(s, states);
}

const struct kernel KERNEL = {
    .name = NAME,
    .lanes = LANES * BUNDLES,
    .usable = USABLE,
    .walk = walk,
    .count = count,
    .stream = stream,
    .each = each,
};

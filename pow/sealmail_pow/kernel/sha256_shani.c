/* Four messages side by side with the SHA instructions of x86.
 *
 * sha256rnds2 does two rounds, but its result comes four cycles later while a new one can begin
 * in each: one message alone leaves the unit idle most of the time, four keep it busy.
 *
 * The instructions hold the state in two registers, of the words A B E F and C D G H. */
#include "processor.h"

#ifdef X86_KERNELS

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "message.h"

#define TARGET __attribute__((target("sha,sse4.1")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { STREAMS = 4 };

typedef struct {
    __m128i abef, cdgh;
} halves;

INLINE halves pack(const uint32_t *state)
{
    __m128i dcba = _mm_loadu_si128((const __m128i *)state);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
    __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    return (halves){_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0)};
}

INLINE void unpack(uint32_t *state, halves s)
{
    __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
    __m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

INLINE __m128i load_words(const uint8_t *block)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block), big_endian);
}

INLINE __m128i constants(int quad)
{
    return _mm_loadu_si128((const __m128i *)(sha256_k + 4 * quad));
}

/* Rounds 4 * quad to 4 * quad + 3. */
INLINE halves four_rounds(halves s, __m128i wk)
{
    s.cdgh = _mm_sha256rnds2_epu32(s.cdgh, s.abef, wk);
    s.abef = _mm_sha256rnds2_epu32(s.abef, s.cdgh, _mm_shuffle_epi32(wk, 0x0e));
    return s;
}

/* Words 4 * quad to 4 * quad + 3 of the schedule, of which w holds the last sixteen; then four
 * new ones take their place. */
INLINE __m128i next_words(__m128i w[4], int quad)
{
    __m128i words = w[quad % 4], last = w[(quad + 3) % 4];
    if (quad < 12) {
        __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(words, w[(quad + 1) % 4]),
                                    _mm_alignr_epi8(last, w[(quad + 2) % 4], 4));
        w[quad % 4] = _mm_sha256msg2_epu32(sum, last);
    }
    return words;
}

#define EACH(count, ...) \
    _Pragma("GCC unroll 4") for (int i = 0; i < (count); i++) { __VA_ARGS__; }

#define ALL_QUADS(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

/* A block for each stream, with its own words. */
INLINE void own_blocks(halves *s, __m128i (*w)[4], int streams)
{
    halves before[STREAMS];
    EACH(streams, before[i] = s[i])
#define OWN(quad) \
    EACH(streams, s[i] = four_rounds(s[i], _mm_add_epi32(next_words(w[i], quad), constants(quad))))
    ALL_QUADS(OWN)
#undef OWN
    EACH(streams, s[i].abef = _mm_add_epi32(s[i].abef, before[i].abef);
                  s[i].cdgh = _mm_add_epi32(s[i].cdgh, before[i].cdgh))
}

/* The same four rounds for all streams. The instruction takes its words from one certain
 * register: each half of them is put there once and used by all streams in turn. */
INLINE void shared_rounds(halves *s, __m128i wk)
{
    EACH(STREAMS, s[i].cdgh = _mm_sha256rnds2_epu32(s[i].cdgh, s[i].abef, wk))
    wk = _mm_shuffle_epi32(wk, 0x0e);
    EACH(STREAMS, s[i].abef = _mm_sha256rnds2_epu32(s[i].abef, s[i].cdgh, wk))
}

/* The same block for all streams, its schedule known. */
INLINE void shared_block(halves *s, const uint32_t *wk)
{
    halves before[STREAMS];
    EACH(STREAMS, before[i] = s[i])
#define SHARED(quad) shared_rounds(s, _mm_loadu_si128((const __m128i *)(wk + 4 * (quad))));
    ALL_QUADS(SHARED)
#undef SHARED
    EACH(STREAMS, s[i].abef = _mm_add_epi32(s[i].abef, before[i].abef);
                  s[i].cdgh = _mm_add_epi32(s[i].cdgh, before[i].cdgh))
}

/* The same block for all streams, its schedule computed on the way, once for all. */
INLINE void streamed_block(halves *s, const uint8_t *block)
{
    halves before[STREAMS];
    __m128i w[4];
    EACH(4, w[i] = load_words(block + 16 * i))
    EACH(STREAMS, before[i] = s[i])
#define STREAMED(quad) shared_rounds(s, _mm_add_epi32(next_words(w, quad), constants(quad)));
    ALL_QUADS(STREAMED)
#undef STREAMED
    EACH(STREAMS, s[i].abef = _mm_add_epi32(s[i].abef, before[i].abef);
                  s[i].cdgh = _mm_add_epi32(s[i].cdgh, before[i].cdgh))
}

/* The first sixteen characters of a message whose nonce spells a place, as spell_place() does:
 * all digits are split off and looked up at once, then put where the layout has them. */
struct spelling {
    __m128i order, varying, fixed;
};

INLINE struct spelling spelling_of(const struct message *m)
{
    /* Of the sixteen bytes below, 0 to 7 are the even digits of lo and hi, least significant
     * first, and 8 to 15 the odd ones. A word is written from its last byte to its first. */
    static const int8_t orders[][16] = {
        [SALT_AND_TWELVE] = {-1, -1, -1, -1, 4, 5, 6, 7, 12, 13, 14, 15, 10, 11, 2, 3},
        [TWELVE] = {4, 5, 6, 7, 12, 13, 14, 15, 10, 11, 2, 3, -1, -1, -1, -1},
        [SIXTEEN] = {4, 5, 6, 7, 12, 13, 14, 15, 0, 1, 2, 3, 8, 9, 10, 11},
    };
    __m128i order = _mm_loadu_si128((const __m128i *)orders[m->layout]);
    __m128i varying = _mm_cmpgt_epi8(order, _mm_set1_epi8(-1));
    __m128i words = _mm_loadu_si128((const __m128i *)m->words);
    return (struct spelling){order, varying, _mm_andnot_si128(varying, words)};
}

INLINE __m128i spell(const struct spelling *spelling, uint64_t place)
{
    const __m128i low_nibbles = _mm_set1_epi8(15);
    __m128i x = _mm_cvtsi64_si128((long long)place);
    x = _mm_unpacklo_epi64(x, _mm_srli_epi64(x, 4));
    x = _mm_shuffle_epi8(_mm_and_si128(x, low_nibbles), spelling->order);
    x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)"0123456789abcdef"), x);
    return _mm_or_si128(_mm_and_si128(x, spelling->varying), spelling->fixed);
}

/* Hash four messages that differ in their first four words; give the digests' first two. */
INLINE void hash(const struct message *m, const __m128i *text, uint64_t *places)
{
    const __m128i *words = (const __m128i *)m->words;
    halves s[STREAMS];
    __m128i w[STREAMS][4];
    halves start = pack(sha256_start);
    EACH(STREAMS, s[i] = start;
                  w[i][0] = text[i];
                  w[i][1] = _mm_loadu_si128(words + 1);
                  w[i][2] = _mm_loadu_si128(words + 2);
                  w[i][3] = _mm_loadu_si128(words + 3))
    own_blocks(s, w, STREAMS);
    for (size_t block = 0; block < m->kept_blocks; block++)
        shared_block(s, m->wk[block]);
    uint64_t mask = (uint64_t)m->mask_hi << 32 | m->mask_lo;
    EACH(STREAMS, places[i] = (uint64_t)_mm_extract_epi64(s[i].abef, 1) & mask)
}

TARGET static unsigned walk(const struct message *m, struct places *at, unsigned most,
                            struct arrivals *seen)
{
    struct spelling spelling = spelling_of(m);
    uint64_t point_mask = (uint64_t)m->point_mask << 32, places[STREAMS];
    __m128i text[STREAMS];
    EACH(STREAMS, places[i] = place_of_lane(at, (unsigned)i))
    unsigned steps = 0;
    seen->count = 0;
    do {
        EACH(STREAMS, text[i] = spell(&spelling, places[i]))
        hash(m, text, places);
        steps++;
        uint32_t arrived = 0;
        EACH(STREAMS, arrived |= (uint32_t)((places[i] & point_mask) == 0) << i)
        if (arrived) {
            struct places *there = note_arrival(seen, steps, arrived);
            EACH(STREAMS, put_lane(there, (unsigned)i, places[i]))
        }
    } while (steps < most && seen->count < MOST_ARRIVALS);
    EACH(STREAMS, put_lane(at, (unsigned)i, places[i]))
    return steps;
}

TARGET static void count(const struct message *m, uint64_t from, struct places *out)
{
    uint32_t words[4];
    count_words(m, from, words);
    unsigned last = m->count_at + COUNT_DIGITS - 1;
    uint64_t places[STREAMS];
    __m128i text[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        uint32_t digit = (uint8_t)"0123456789abcdef"[(from + i) % 16];
        uint32_t with_digit[4];
        memcpy(with_digit, words, sizeof words);
        with_digit[last / 4] |= digit << 8 * (3 - last % 4);
        text[i] = _mm_loadu_si128((const __m128i *)with_digit);
    }
    hash(m, text, places);
    EACH(STREAMS, put_lane(out, (unsigned)i, places[i]))
}

TARGET static void stream(uint32_t (*states)[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    halves s[STREAMS];
    EACH(STREAMS, s[i] = pack(states[i]))
    for (; count > 0; count--, blocks += BLOCK_BYTES)
        streamed_block(s, blocks);
    EACH(STREAMS, unpack(states[i], s[i]))
}

TARGET static void each(uint32_t (*states)[STATE_WORDS], const uint8_t *const *blocks,
                        size_t count)
{
    halves s[STREAMS];
    __m128i w[STREAMS][4];
    EACH(STREAMS, s[i] = pack(states[i]))
    for (size_t at = 0; at < count * BLOCK_BYTES; at += BLOCK_BYTES) {
        EACH(STREAMS, const uint8_t *block = blocks[i] + at;
                      w[i][0] = load_words(block);
                      w[i][1] = load_words(block + 16);
                      w[i][2] = load_words(block + 32);
                      w[i][3] = load_words(block + 48))
        own_blocks(s, w, STREAMS);
    }
    EACH(STREAMS, unpack(states[i], s[i]))
}

TARGET void shani_compress(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    halves s[1] = {pack(state)};
    __m128i w[1][4];
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        EACH(4, w[0][i] = load_words(blocks + 16 * i))
        own_blocks(s, w, 1);
    }
    unpack(state, s[0]);
}

TARGET void shani_compress_pair(uint32_t states[2][STATE_WORDS], const uint8_t *one,
                                const uint8_t *other, size_t count)
{
    halves s[2] = {pack(states[0]), pack(states[1])};
    __m128i w[2][4];
    for (; count > 0; count--, one += BLOCK_BYTES, other += BLOCK_BYTES) {
        EACH(4, w[0][i] = load_words(one + 16 * i); w[1][i] = load_words(other + 16 * i))
        own_blocks(s, w, 2);
    }
    unpack(states[0], s[0]);
    unpack(states[1], s[1]);
}

const struct kernel shani_kernel = {
    .name = "shani",
    .lanes = STREAMS,
    .usable = has_sha,
    .walk = walk,
    .count = count,
    .stream = stream,
    .each = each,
};

#endif

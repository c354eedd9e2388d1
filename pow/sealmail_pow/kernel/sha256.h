/* SHA-256 of nonce + data, for very many nonces over the same data.
 *
 * A `message` is prepared once and then read by all threads. A `kernel` is one way of hashing
 * several messages at once that differ in their nonces only; it runs on the machines where
 * usable() says so. Searches know kernels by this interface alone.
 */
#ifndef SEALMAIL_SHA256_H
#define SEALMAIL_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK_BYTES = 64,
    BLOCK_WORDS = 16,
    STATE_WORDS = 8,
    ROUNDS = 64,
    /* The widest kernel hashes this many messages at once. */
    MOST_LANES = 32,
    /* The nonces that searches make up are no longer than this. */
    MOST_NONCE = 16,
    /* Up to so many blocks after the first have their schedules kept: 16 KiB, a share of the
     * fastest cache. Data that need more are "long" and streamed. */
    MOST_KEPT_BLOCKS = 64,
};

extern const uint32_t sha256_k[ROUNDS];
extern const uint32_t sha256_start[STATE_WORDS];

static inline uint32_t rotate_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static inline uint32_t small_sigma_0(uint32_t x)
{
    return rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3;
}

static inline uint32_t small_sigma_1(uint32_t x)
{
    return rotate_right(x, 17) ^ rotate_right(x, 19) ^ x >> 10;
}

static inline uint32_t read_word(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static inline void write_word(uint8_t *to, uint32_t word)
{
    to[0] = (uint8_t)(word >> 24);
    to[1] = (uint8_t)(word >> 16);
    to[2] = (uint8_t)(word >> 8);
    to[3] = (uint8_t)word;
}

/* Which words of the first block vary from nonce to nonce. Three cases are compiled apart, so
 * that everything that follows from the fixed words is computed once for the whole search. */
enum layout {
    SALT_AND_TWELVE, /* words 1 to 3: four fixed characters, then twelve that vary */
    TWELVE,          /* words 0 to 2: where sixteen characters would cost a block more */
    SIXTEEN,         /* words 0 to 3: for places of more than 48 bits */
};

struct message {
    enum layout layout;
    unsigned nonce_length;
    /* The nonce's characters count_at to count_at + COUNT_DIGITS - 1 are the count, if any. */
    unsigned count_at;

    /* Which bits of the digest's first two words make a place, and which of these are zero in
     * a distinguished one. */
    uint32_t mask_hi, mask_lo, point_mask;

    /* The first block, '0' where the nonce varies. */
    uint8_t first[BLOCK_BYTES];
    uint32_t words[BLOCK_WORDS];
    /* The state after the round of the first word that varies, this word taken as zero. */
    uint32_t begun[STATE_WORDS];
    /* Each word of the first block plus its round constant. */
    uint32_t first_wk[BLOCK_WORDS];
    /* Words 16 to 31 of the schedule as far as they follow from words that do not vary. */
    uint32_t fixed[BLOCK_WORDS];

    /* Short data: all further blocks, and their schedules with the round constants added. */
    size_t kept_blocks;
    uint8_t kept[MOST_KEPT_BLOCKS * BLOCK_BYTES];
    uint32_t wk[MOST_KEPT_BLOCKS][ROUNDS];

    /* Long data: the further blocks stay where they are, but for the last one or two. */
    bool is_long;
    const uint8_t *rest;
    size_t rest_blocks;
    unsigned tail_blocks;
    uint8_t tail[2 * BLOCK_BYTES];
};

/* The first bits of so many digests; bits beyond those asked for are zero. */
struct places {
    uint32_t hi[MOST_LANES];
    uint32_t lo[MOST_LANES];
};

static inline uint64_t place_of_lane(const struct places *at, unsigned lane)
{
    return (uint64_t)at->hi[lane] << 32 | at->lo[lane];
}

static inline void put_lane(struct places *at, unsigned lane, uint64_t place)
{
    at->hi[lane] = (uint32_t)(place >> 32);
    at->lo[lane] = (uint32_t)place;
}

/* A step after which some lanes stood on a distinguished point: which ones, a bit for each, and
 * where all were. */
struct arrival {
    unsigned step;
    uint32_t lanes;
    struct places at;
};

/* What is noted of one walk. To leave a kernel at each arrival would cost short searches a fifth
 * of their time, and these few are soon enough together. */
enum { MOST_ARRIVALS = 12 };

struct arrivals {
    unsigned count;
    struct arrival of[MOST_ARRIVALS];
};

/* Room to note one more; the caller fills in the places. */
static inline struct places *note_arrival(struct arrivals *seen, unsigned step, uint32_t lanes)
{
    struct arrival *arrival = seen->of + seen->count++;
    arrival->step = step;
    arrival->lanes = lanes;
    return &arrival->at;
}

struct kernel {
    const char *name;
    unsigned lanes;
    bool (*usable)(void);
    /* Step every lane from its place to the next, and so on, for `most` steps or until there is
     * no room to note more arrivals; the first step is number 1. Return the steps. Short data
     * only. */
    unsigned (*walk)(const struct message *message, struct places *at, unsigned most,
                     struct arrivals *seen);
    /* Give the places of the nonces that count `from` (a multiple of the lanes) and on.
     * Short data only. */
    void (*count)(const struct message *message, uint64_t from, struct places *out);
    /* Take every lane's state through the same blocks. */
    void (*stream)(uint32_t (*states)[STATE_WORDS], const uint8_t *blocks, size_t count);
    /* Take every lane's state through as many blocks of its own. */
    void (*each)(uint32_t (*states)[STATE_WORDS], const uint8_t *const *blocks, size_t count);
};

extern const struct kernel portable_kernel, avx2_kernel, avx512_kernel, avx512_single_kernel;
extern const struct kernel shani_kernel;

/* One message after the other: portable, and with the SHA instructions. */
void portable_compress(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count);
void shani_compress(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count);
/* Two messages of one length side by side. */
void shani_compress_pair(uint32_t states[2][STATE_WORDS], const uint8_t *one,
                         const uint8_t *other, size_t count);

#endif

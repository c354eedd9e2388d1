/* The searches: nonces whose digests begin with the same bits. */
#ifndef SEALMAIL_SEARCH_H
#define SEALMAIL_SEARCH_H

#include "message.h"
#include "sha256.h"
#include "watch.h"

enum outcome { FOUND, STOPPED, OUT_OF_MEMORY };

enum { MOST_NONCES = 16, MOST_THREADS = 256 };

struct solution {
    char nonces[MOST_NONCES][MOST_NONCE];
    unsigned nonce_length;
    uint64_t hashes;
};

struct task {
    const struct kernel *kernel;
    const uint8_t *data;
    size_t length;
    unsigned bits;
    const char *salt; /* at least MOST_NONCE hex digits, or NULL to count without any */
    struct watch *watch;
};

/* Two nonces by walking from one distinguished point to the next, in so many threads. */
enum outcome search_by_walking(const struct task *task, unsigned threads, uint64_t seed,
                               struct solution *solution);

/* The first `wanted` nonces that agree, counting from zero; `expected` is about how many that
 * will take. */
enum outcome search_by_counting(const struct task *task, unsigned wanted, double expected,
                                struct solution *solution);

/* How many places have `bits` in common is decided by the whole digests. */
bool digests_agree(const uint8_t one[32], const uint8_t other[32], unsigned bits);

#endif

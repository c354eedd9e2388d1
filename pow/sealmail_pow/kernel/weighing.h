/* Weighing a stamp over bytes that come piece by piece; none of them are kept. */
#ifndef SEALMAIL_WEIGHING_H
#define SEALMAIL_WEIGHING_H

#include "search.h"
#include "verify.h"

/* One running SHA-256 for each nonce, two of which are hashed side by side. */
struct weighing {
    size_t count;
    uint32_t states[MOST_NONCES][STATE_WORDS];
    /* The bytes of each that do not make a block yet. */
    uint8_t begun[MOST_NONCES][BLOCK_BYTES];
    size_t used[MOST_NONCES];
    uint64_t lengths[MOST_NONCES];
};

/* Begin with the nonces, 2 to MOST_NONCES of them. */
void begin_weighing(struct weighing *weighing, const struct text *nonces, size_t count);

/* Take the next stamped bytes. */
void weigh(struct weighing *weighing, struct text data);

/* How many leading bits all digests share over the bytes so far; it may go on afterwards. */
unsigned weighed_bits(const struct weighing *weighing);

#endif

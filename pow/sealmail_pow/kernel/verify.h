/* Weighing a stamp. */
#ifndef SEALMAIL_VERIFY_H
#define SEALMAIL_VERIFY_H

#include "sha256.h"

struct text {
    const uint8_t *bytes;
    size_t length;
};

/* How many leading bits all digests of nonce + data share; `count` is at least two. */
unsigned shared_bits(const struct text *nonces, size_t count, struct text data);

#endif

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

/* How many blocks of SHA-256 a message of so many bytes takes. */
size_t blocks_of(size_t length);

/* Write a whole message, padding and all, as many blocks as that are. */
void join(uint8_t *to, struct text nonce, struct text data);

/* Pad what is used of the last one or two blocks of a message so long; return how many they are. */
size_t end_message(uint8_t *to, size_t used, uint64_t length);

/* How many leading bits two digests share. */
unsigned common_bits(const uint32_t *one, const uint32_t *other);

#endif

/* Preparing messages, and hashing one or a batch of them whatever their length. */
#ifndef SEALMAIL_MESSAGE_H
#define SEALMAIL_MESSAGE_H

#include "sha256.h"
#include "watch.h"

/* The original counts its nonces as %09x. */
enum { COUNT_DIGITS = 9 };

/* Prepare walks over `data`, which must outlive the message: a nonce is salt, at least four
 * characters of it, and a place of so many bits (at most 64), of which `theta` (at most 32)
 * are zero in a distinguished point. */
void prepare_walk(struct message *message, const uint8_t *data, size_t length,
                  const char salt[MOST_NONCE], unsigned bits, unsigned theta);

/* Prepare counting over `data`, which must outlive the message: a nonce is the count of nine
 * digits, after salt of as many characters as cost no block more, or after none. */
void prepare_count(struct message *message, const uint8_t *data, size_t length,
                   const char *salt, unsigned bits);

/* Write the nonce of a place, or of a count: nonce_length characters and no final zero. */
void spell_place(const struct message *message, uint64_t place, char *nonce);
void spell_count(const struct message *message, uint64_t count, char *nonce);

/* Long data are looked away from every 64 KiB, here and below, and left at once when the watch
 * says stop; what was found then has no meaning. */

/* Hash one nonce. */
void digest_nonce(const struct message *message, const char *nonce, uint8_t digest[32],
                  struct watch *watch);
uint64_t place_of_nonce(const struct message *message, const char *nonce, struct watch *watch);

/* As the kernel's walk and count, for data of any length. */
unsigned walk_lanes(const struct kernel *kernel, const struct message *message,
                    struct places *at, unsigned most, struct arrivals *seen,
                    struct watch *watch);
void count_lanes(const struct kernel *kernel, const struct message *message, uint64_t from,
                 struct places *out, struct watch *watch);

/* The digits of a count at their place in the first words, the last digit left zero. */
void count_words(const struct message *message, uint64_t count, uint32_t words[4]);

#endif

/* Weighing many stamps over short data, as many messages at once as a kernel has lanes. */
#ifndef SEALMAIL_BATCH_H
#define SEALMAIL_BATCH_H

#include "verify.h"

struct batch;

/* Told how many leading bits the digests of stamp number `which` share. */
typedef void (*tell_bits)(void *listener, size_t which, unsigned bits);

/* NULL if there is no memory. */
struct batch *begin_batch(const struct kernel *kernel, tell_bits tell, void *listener);

/* Take a copy of a stamp of at least two nonces and of its data, and tell its bits now or later;
 * false if it must be weighed by itself, as data longer than some kilobytes. */
bool add_to_batch(struct batch *batch, size_t which, const struct text *nonces, size_t count,
                  struct text data);

/* Tell what is left to tell. */
void settle_batch(struct batch *batch);

void free_batch(struct batch *batch);

#endif

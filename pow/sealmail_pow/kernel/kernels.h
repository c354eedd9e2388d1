/* The kernels of this machine, and hashing of single messages. */
#ifndef SEALMAIL_KERNELS_H
#define SEALMAIL_KERNELS_H

#include "sha256.h"

/* Look at the processor; to be called before everything else here. */
void know_the_machine(void);

/* All kernels in this build, ended by NULL. */
extern const struct kernel *const all_kernels[];

/* The usable kernel of that name, or NULL. */
const struct kernel *kernel_named(const char *name);

/* The kernel that a short race at the first call shows to be the fastest, for short data and
 * for long. Callers hold a lock. */
const struct kernel *fastest_kernel(bool long_data);

/* Take one state through the blocks, or two states each through its own. */
void hash_blocks(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count);
void hash_block_pairs(uint32_t states[2][STATE_WORDS], const uint8_t *one, const uint8_t *other,
                   size_t count);

/* Whether hash_block_pairs() takes little longer than one state alone. */
bool has_pairs(void);

/* The 64 words of a block's schedule, each plus its round constant. */
void expand_block(const uint8_t *block, uint32_t wk[ROUNDS]);

/* One round on a state; `wk` is the round's word plus its constant. */
void portable_round(uint32_t state[STATE_WORDS], uint32_t wk);

#endif

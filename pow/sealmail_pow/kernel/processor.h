/* What the processor can do, and the operating system lets it; know_the_machine() finds out. */
#ifndef SEALMAIL_PROCESSOR_H
#define SEALMAIL_PROCESSOR_H

#include <stdbool.h>

/* Whether the kernels of x86 are part of this build. Tests leave them out, and so run on any
 * machine what other processors run. */
#if defined(__x86_64__) && !defined(PORTABLE_ONLY)
#define X86_KERNELS
#endif

bool has_avx2(void);
bool has_avx512(void);
bool has_sha(void);

#endif

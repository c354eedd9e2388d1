/* What the processor can do, and the operating system lets it; know_the_machine() finds out. */
#ifndef SEALMAIL_PROCESSOR_H
#define SEALMAIL_PROCESSOR_H

#include <stdbool.h>

bool has_avx2(void);
bool has_avx512(void);
bool has_sha(void);

#endif

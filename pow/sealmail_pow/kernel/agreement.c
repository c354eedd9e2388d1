#include <string.h>

#include "search.h"

bool digests_agree(const uint8_t one[32], const uint8_t other[32], unsigned bits)
{
    unsigned whole = bits / 8;
    if (memcmp(one, other, whole) != 0)
        return false;
    return bits % 8 == 0 || (one[whole] ^ other[whole]) >> (8 - bits % 8) == 0;
}

"""Sizes that tell little: mail is filled up to one of a few lengths.

The lengths are those of Padmé (Nikitin and others, 2019): a number of n bits keeps only its
upper log2(n) + 1 bits. At most 12 % is added, and of two mails of about the same size nobody
can tell which is longer. How many blocks there are, and when they travel, is still seen.
"""

# Below this all mails are alike: a text, a key and what belongs to them.
LEAST_SIZE = 8 * 1024


def padded_size(size: int) -> int:
    """Return the length to which ``size`` bytes are filled up."""
    if size <= LEAST_SIZE:
        return LEAST_SIZE
    exponent = size.bit_length() - 1
    free_bits = exponent - exponent.bit_length()
    mask = (1 << free_bits) - 1
    return (size + mask) & ~mask

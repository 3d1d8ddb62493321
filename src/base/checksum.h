/* SPDX-License-Identifier: MIT
 *
 * XXH64, a checksum of 64 bits, as its specification has it, with seed 0: every
 * bit of the data matters, and damage that is an accident is found. However the
 * data comes in pieces, the sum is that of all of it. No thread shares one. */
#ifndef SL_BASE_CHECKSUM_H
#define SL_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { SL__CHECKSUM_STRIPE = 32 };

typedef struct sl__checksum {
    uint64_t lanes[4];
    uint64_t bytes;                          /* so far */
    unsigned char rest[SL__CHECKSUM_STRIPE]; /* what is no whole stripe yet */
} sl__checksum;

void sl__checksum_start(sl__checksum *sum);
void sl__checksum_add(sl__checksum *sum, const void *data, size_t bytes);

/* The sum of all that was added; more may be added after. */
uint64_t sl__checksum_end(const sl__checksum *sum);

#endif

/* SPDX-License-Identifier: MIT
 *
 * XXH64, a 64-bit checksum, as its specification defines it, with seed 0. It
 * finds accidental damage. The sum does not depend on how the data is divided
 * into calls. One thread at a time per checksum. */
#ifndef SL_BASE_CHECKSUM_H
#define SL_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { SL__CHECKSUM_STRIPE = 32 };

typedef struct sl__checksum {
    uint64_t lanes[4];
    uint64_t bytes;                          /* so far */
    unsigned char rest[SL__CHECKSUM_STRIPE]; /* an incomplete stripe */
} sl__checksum;

void sl__checksum_start(sl__checksum *sum);
void sl__checksum_add(sl__checksum *sum, const void *data, size_t bytes);

/* The sum of all that was added; more may be added after. */
uint64_t sl__checksum_end(const sl__checksum *sum);

#endif

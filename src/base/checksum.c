/* SPDX-License-Identifier: MIT
 *
 * Four lanes take 8 bytes each of every stripe of 32, and are mixed at the end;
 * what is left over is mixed in by words, then bytes. Written from the
 * specification of xxHash, "XXH64 algorithm description". */
#include "base/checksum.h"

#include <string.h>

/* The specification's primes. */
#define PRIME_1 UINT64_C(0x9e3779b185ebca87)
#define PRIME_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME_3 UINT64_C(0x165667b19e3779f9)
#define PRIME_4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME_5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

/* Little-endian on every machine; compilers make one load of each. */
static uint64_t read_4(const unsigned char *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 |
           (uint64_t)at[3] << 24;
}

static uint64_t read_8(const unsigned char *at)
{
    return read_4(at) | read_4(at + 4) << 32;
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * PRIME_2, 31) * PRIME_1;
}

static void add_stripe(uint64_t lanes[4], const unsigned char *at)
{
    for (int i = 0; i < 4; i++)
        lanes[i] = mix(lanes[i], read_8(at + 8 * i));
}

void sl__checksum_start(sl__checksum *sum)
{
    *sum = (sl__checksum){
        .lanes = {PRIME_1 + PRIME_2, PRIME_2, 0, UINT64_C(0) - PRIME_1}};
}

void sl__checksum_add(sl__checksum *sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t kept = sum->bytes % SL__CHECKSUM_STRIPE;
    sum->bytes += bytes;
    /* The bytes kept from before become a stripe, if there are now enough. */
    if (kept && kept + bytes >= SL__CHECKSUM_STRIPE) {
        size_t missing = SL__CHECKSUM_STRIPE - kept;
        memcpy(sum->rest + kept, at, missing);
        add_stripe(sum->lanes, sum->rest);
        at += missing;
        bytes -= missing;
        kept = 0;
    }
    while (kept == 0 && bytes >= SL__CHECKSUM_STRIPE) {
        add_stripe(sum->lanes, at);
        at += SL__CHECKSUM_STRIPE;
        bytes -= SL__CHECKSUM_STRIPE;
    }
    if (bytes)
        memcpy(sum->rest + kept, at, bytes);
}

/* Combines the lanes. Requires: there was at least one whole stripe. */
static uint64_t converge(const uint64_t lanes[4])
{
    uint64_t value = rotate(lanes[0], 1) + rotate(lanes[1], 7) +
                     rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++)
        value = (value ^ mix(0, lanes[i])) * PRIME_1 + PRIME_4;
    return value;
}

static uint64_t add_rest(uint64_t value, const unsigned char *at, size_t bytes)
{
    for (; bytes >= 8; at += 8, bytes -= 8)
        value = rotate(value ^ mix(0, read_8(at)), 27) * PRIME_1 + PRIME_4;
    if (bytes >= 4) {
        value = rotate(value ^ read_4(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        at += 4;
        bytes -= 4;
    }
    for (; bytes > 0; at++, bytes--)
        value = rotate(value ^ *at * PRIME_5, 11) * PRIME_1;
    return value;
}

uint64_t sl__checksum_end(const sl__checksum *sum)
{
    uint64_t value =
        sum->bytes >= SL__CHECKSUM_STRIPE ? converge(sum->lanes) : PRIME_5;
    value = add_rest(value + sum->bytes, sum->rest,
                     sum->bytes % SL__CHECKSUM_STRIPE);
    value = (value ^ value >> 33) * PRIME_2;
    value = (value ^ value >> 29) * PRIME_3;
    return value ^ value >> 32;
}

/* SPDX-License-Identifier: MIT
 *
 * AMX's tile registers. */
#ifndef SL_TENSOR_CPU_AMX_H
#define SL_TENSOR_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* Configures all eight tiles at full size. */
static void begin_tiles(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1,
               .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

#endif

/* SPDX-License-Identifier: MIT
 *
 * Anything may be read; what is read prints and reads back the same, and all
 * text forms can be written. */
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_schedule *first, *second;
    sl_string once = SL_STRING_INIT, twice = SL_STRING_INIT;
    sl_string other = SL_STRING_INIT;
    if (sl_schedule_read_csv((const char *)data, size, &first)) {
        must(*sl_error_text());
        return 0;
    }
    must(!sl_schedule_write_csv(first, sl_write_string, &once));
    must(!sl_schedule_read_csv(once.data, once.length, &second));
    must(!sl_schedule_write_csv(second, sl_write_string, &twice));
    must(once.length == twice.length);
    must(memcmp(once.data, twice.data, once.length) == 0);
    must(!sl_schedule_write_grid(first, 0, SIZE_MAX, 1, sl_write_string,
                                 &other));
    must(!sl_schedule_write_json(first, sl_write_string, &other));
    sl_string_clear(&once);
    sl_string_clear(&twice);
    sl_string_clear(&other);
    sl_schedule_destroy(first);
    sl_schedule_destroy(second);
    return 0;
}

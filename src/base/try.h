/* SPDX-License-Identifier: MIT
 *
 * Forwarding a failure. SL__TRY returns the status of a call that fails, where
 * there is nothing to undo; SL__TRY_OR leaves it in `status` and goes to the
 * label that undoes what was done:
 *
 *     sl_status status;
 *     SL__TRY(open_file(path, &file));
 *     SL__TRY_OR(close_file, read_all(file, &text));
 *     status = parse(text);
 *     free(text);
 * close_file:
 *     close(file);
 *     return status; */
#ifndef SL_BASE_TRY_H
#define SL_BASE_TRY_H

#include "sluice/base.h"

#define SL__TRY(call)                                                          \
    do {                                                                       \
        sl_status sl__tried = (call);                                          \
        if (sl__tried)                                                         \
            return sl__tried;                                                  \
    } while (0)

#define SL__TRY_OR(label, call)                                                \
    do {                                                                       \
        status = (call);                                                       \
        if (status)                                                            \
            goto label;                                                        \
    } while (0)

#endif

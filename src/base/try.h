/* SPDX-License-Identifier: MIT
 *
 * Forwards a failure: the caller of a call that fails returns its status. For
 * functions that have nothing to undo. */
#ifndef SL_BASE_TRY_H
#define SL_BASE_TRY_H

#include "sluice/base.h"

#define SL__TRY(call)                                                          \
    do {                                                                       \
        sl_status sl__tried = (call);                                          \
        if (sl__tried)                                                         \
            return sl__tried;                                                  \
    } while (0)

#endif

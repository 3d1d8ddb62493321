/* SPDX-License-Identifier: MIT
 *
 * What public functions refuse before they look at anything else: a required
 * argument that is NULL. Functions that return a status begin with it:
 *
 *     SL__NEED(schedule, write);
 *
 * Up to five arguments; the sentence names the function and the first argument
 * that is NULL. Internal functions assume that this was done. */
#ifndef SL_BASE_ARGUMENTS_H
#define SL_BASE_ARGUMENTS_H

#include "sluice/base.h"

#define SL__NEED(...)                                                          \
    SL__NEED_PICK(__VA_ARGS__, SL__NEED_5, SL__NEED_4, SL__NEED_3, SL__NEED_2, \
                  SL__NEED_1, 0)                                               \
    (__VA_ARGS__)
#define SL__NEED_PICK(a, b, c, d, e, name, ...) name

#define SL__NEED_1(a)                                                          \
    do {                                                                       \
        if (!(a))                                                              \
            return sl_fail(SL_EINVAL, "%s: %s is NULL", __func__, #a);         \
    } while (0)
#define SL__NEED_2(a, b)                                                       \
    do {                                                                       \
        SL__NEED_1(a);                                                         \
        SL__NEED_1(b);                                                         \
    } while (0)
#define SL__NEED_3(a, b, c)                                                    \
    do {                                                                       \
        SL__NEED_1(a);                                                         \
        SL__NEED_2(b, c);                                                      \
    } while (0)
#define SL__NEED_4(a, b, c, d)                                                 \
    do {                                                                       \
        SL__NEED_1(a);                                                         \
        SL__NEED_3(b, c, d);                                                   \
    } while (0)
#define SL__NEED_5(a, b, c, d, e)                                              \
    do {                                                                       \
        SL__NEED_1(a);                                                         \
        SL__NEED_4(b, c, d, e);                                                \
    } while (0)

#endif

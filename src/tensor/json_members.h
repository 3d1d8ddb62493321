/* SPDX-License-Identifier: MIT
 *
 * Finds the members of a JSON object in its text, one after the other, without
 * building a tree, which would take fifty times the memory of the text. Only
 * what is between members is checked here; the caller parses keys and
 * values. */
#ifndef SL_TENSOR_JSON_MEMBERS_H
#define SL_TENSOR_JSON_MEMBERS_H

#include "sluice/base.h"

#include <stdbool.h>

typedef struct sl__members {
    const char *start;
    const char *at;
    const char *end;
    bool inside; /* a member was read before */
} sl__members;

/* A part of the text. */
typedef struct sl__span {
    const char *text;
    size_t length;
} sl__span;

/* Begins with the text of an object; text after the object is refused at the
 * end. */
void sl__members_start(sl__members *members, sl__span text);

/* The next key, with its quotes, and its value; false at the end. SL_EPARSE
 * names the byte at which the object is malformed. */
sl_status sl__members_next(sl__members *members, sl__span *key, sl__span *value,
                           bool *out_more);

#endif

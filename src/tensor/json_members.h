/* SPDX-License-Identifier: MIT
 *
 * Members of a JSON object, one after the other, found in its text without a
 * tree of it: a tree takes fifty times the memory that the text does. Only what
 * is between members is looked at here; whether a key or a value is JSON is for
 * the one who reads it. */
#ifndef SL_TENSOR_JSON_MEMBERS_H
#define SL_TENSOR_JSON_MEMBERS_H

#include "sluice/base.h"

#include <stdbool.h>

typedef struct sl__members {
    const char *start;
    const char *at;
    const char *end;
    bool inside; /* a member was there before */
} sl__members;

/* A piece of the text. */
typedef struct sl__span {
    const char *text;
    size_t length;
} sl__span;

/* Begins with the text of an object; what is behind it is refused at the
 * end. */
void sl__members_start(sl__members *members, sl__span text);

/* The next key, with its quotes, and its value; false at the end. SL_EPARSE
 * says at which byte it is no object. */
sl_status sl__members_next(sl__members *members, sl__span *key, sl__span *value,
                           bool *out_more);

#endif

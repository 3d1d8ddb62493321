/* SPDX-License-Identifier: MIT
 *
 * What writing (checkpoint_write.c) and reading (checkpoint.c) a checkpoint
 * share. One is a folder that is written under a hidden name, made lasting, and
 * renamed: it is there as a whole or not at all. Last in it comes
 * training.json, with the size and sum of every other file, by which a damaged
 * one is known.
 *
 * Version 2 has XXH64 for these sums, version 1 one of our own. */
#ifndef SL_TRAIN_CHECKPOINT_H
#define SL_TRAIN_CHECKPOINT_H

#include "train/train.h"

#include <jansson.h>

enum { SL__CHECKPOINT_VERSION = 2 };

/* A sum over the text of an object, without its own `sum`, which goes. */
sl_status sl__sum_json(json_t *root, char out[17]);

#endif

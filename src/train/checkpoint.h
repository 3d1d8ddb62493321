/* SPDX-License-Identifier: MIT
 *
 * Shared by writing (checkpoint_write.c) and reading (checkpoint.c) a
 * checkpoint. A checkpoint is a folder that is written under a hidden name,
 * synced to disk, and renamed: it exists completely or not at all.
 * training.json is written last; it has the size and checksum of every other
 * file, which reveal damage.
 *
 * Version 2 has XXH64 as checksum, version 1 one that is not used elsewhere. */
#ifndef SL_TRAIN_CHECKPOINT_H
#define SL_TRAIN_CHECKPOINT_H

#include "train/train.h"

#include <jansson.h>

enum { SL__CHECKPOINT_VERSION = 2 };

/* The checksum of an object's text, from which its member `sum` is removed
 * first. */
sl_status sl__sum_json(json_t *root, char out[17]);

#endif

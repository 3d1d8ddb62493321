/* SPDX-License-Identifier: MIT
 *
 * What the files of training share. */
#ifndef SL_TRAIN_TRAIN_H
#define SL_TRAIN_TRAIN_H

#include "sluice/train.h"

/* The name that a parameter has in a checkpoint: of a tied one, the first that
 * its first stage has for it. (start.c) */
const char *sl__tied_name(const sl_model *model, int stage, const char *name);

#endif

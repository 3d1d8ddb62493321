/* SPDX-License-Identifier: MIT
 *
 * All of Sluice: one header per layer. Start with schedule.h. */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include "sluice/base.h"
#include "sluice/schedule.h"
#include "sluice/tensor.h"
#include "sluice/comm.h"
#include "sluice/pipeline.h"
#include "sluice/train.h"
#include "sluice/view.h"

#endif

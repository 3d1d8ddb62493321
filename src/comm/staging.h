/* SPDX-License-Identifier: MIT
 *
 * Host copies of messages whose device memory a transport cannot move
 * (staging.c). */
#ifndef SL_COMM_STAGING_H
#define SL_COMM_STAGING_H

#include "comm/comm.h"

typedef struct sl__staged sl__staged;

/* Replaces the memory of a message by a host copy, which `request` keeps. */
sl_status sl__stage_send(sl_comm *comm, sl__stream *stream, const void **data,
                         size_t bytes, sl_request *request);
sl_status sl__stage_recv(sl_comm *comm, sl__stream *stream, void **buffer,
                         size_t bytes, sl_request *request);

/* After a request is complete: copies what was received to its destination. */
sl_status sl__stage_end(sl_comm *comm, sl_request *request);

/* After a request was cancelled: releases its copy. */
void sl__stage_drop(sl_comm *comm, sl_request *request);

/* Frees all unused copies. */
void sl__stage_clear(sl_comm *comm);

#endif

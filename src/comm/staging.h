/* SPDX-License-Identifier: MIT
 *
 * Copies of messages whose memory a transport cannot move (staging.c). */
#ifndef SL_COMM_STAGING_H
#define SL_COMM_STAGING_H

#include "comm/comm.h"

typedef struct sl__staged sl__staged;

/* Replaces the memory of a message by that of a copy, which `request` keeps. */
sl_status sl__stage_send(sl_comm *comm, sl__stream *stream, const void **data,
                         size_t bytes, sl_request *request);
sl_status sl__stage_recv(sl_comm *comm, sl__stream *stream, void **buffer,
                         size_t bytes, sl_request *request);

/* When a request is complete: what was received goes where it belongs. */
sl_status sl__stage_end(sl_comm *comm, sl_request *request);

/* When it was cancelled. */
void sl__stage_drop(sl_comm *comm, sl_request *request);

/* Frees all copies that are free. */
void sl__stage_clear(sl_comm *comm);

#endif

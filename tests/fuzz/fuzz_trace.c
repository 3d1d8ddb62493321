/* SPDX-License-Identifier: MIT
 *
 * Any bytes may be given as the trace of a run; what is read can be shown, as a
 * page and as a picture, and its time adds up. */
#include "fuzz.h"
#include "view/timeline.h"

#include <math.h>

static sl_status count_bytes(void *context, const char *data, size_t length)
{
    (void)data;
    *(size_t *)context += length;
    return SL_OK;
}

static void check_sums(const sl_timeline *timeline)
{
    for (int r = 0; r < timeline->ranks; r++) {
        const sl__track *track = &timeline->tracks[r];
        double sum = track->busy + track->overhead;
        for (int why = 0; why < SL__IDLE_REASONS; why++) {
            must(track->idle[why] >= 0);
            sum += track->idle[why];
        }
        must(fabs(sum - timeline->makespan) <=
             timeline->makespan * 1e-9 + 1e-9);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_timeline *timeline, *planned = NULL;
    size_t page = 0, picture = 0;
    if (sl_timeline_read("fuzz", (const char *)data, size, &timeline))
        return 0;
    check_sums(timeline);
    const sl_timeline *both[2] = {timeline, NULL};
    /* Its order may be one that nobody can run. */
    if (!sl_timeline_planned("plan", timeline, &planned))
        both[1] = planned;
    must(!sl_view_write_html(both, planned ? 2 : 1, count_bytes, &page));
    must(page > 0);
    must(
        !sl_view_write_svg(both, planned ? 2 : 1, NULL, count_bytes, &picture));
    sl_timeline_destroy(planned);
    sl_timeline_destroy(timeline);
    return 0;
}

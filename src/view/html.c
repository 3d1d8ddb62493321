/* SPDX-License-Identifier: MIT
 *
 * The page: one self-contained document. The timelines are data in it, as JSON
 * (names, colours, sums) and as base64 (blocks and messages, encode.h); the
 * script of src/view/page draws what is visible of them.
 *
 * Invariant: text from outside enters the document as JSON in which `<` and `&`
 * are escaped, or as text of an element likewise, so it can end neither. */
#include "sluice/view.h"
#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/writer.h"
#include "view/encode.h"
#include "view/markup.h"
#include "view/page.h"
#include "view/palette.h"

#include <math.h>
#include <string.h>

/* Writes a JSON string in a script element. JSON must be UTF-8, so each byte
 * that is not becomes the replacement character. */
static void put_string(sl__writer *writer, const char *text)
{
    sl__putc(writer, '"');
    while (*text) {
        unsigned char byte = (unsigned char)*text;
        size_t length = sl__utf8_length(text);
        if (length == 0)
            sl__puts(writer, "\\ufffd");
        else if (byte < 0x20 || byte == '"' || byte == '\\' || byte == '<' ||
                 byte == '>' || byte == '&' || byte == 0x7f)
            sl__printf(writer, "\\u%04x", byte);
        else
            sl__put(writer, text, length);
        text += length ? length : 1;
    }
    sl__putc(writer, '"');
}

static void put_colour(sl__writer *writer, sl__colour colour)
{
    sl__printf(writer, "\"#%02x%02x%02x\"", colour.red, colour.green,
               colour.blue);
}

/* ----------------------------------------------------------------- looks -- */

static void put_looks(sl__writer *writer)
{
    sl__puts(writer, "\"looks\": [");
    for (int look = 0; look < SL__LOOKS; look++) {
        sl__printf(writer, "%s{\"text\": \"%s\", \"shades\": [",
                   look ? ",\n" : "\n", sl__look_text((sl__look)look));
        for (int shade = 0; shade < SL__SHADES; shade++) {
            sl__puts(writer, shade ? ", " : "");
            put_colour(writer, sl__look_colour((sl__look)look, shade));
        }
        sl__puts(writer, "], \"white\": [");
        for (int shade = 0; shade < SL__SHADES; shade++) {
            sl__colour colour = sl__look_colour((sl__look)look, shade);
            sl__printf(writer, "%s%s", shade ? ", " : "",
                       sl__wants_white(colour) ? "true" : "false");
        }
        sl__puts(writer, "]}");
    }
    sl__puts(writer, "],\n\"kinds\": [");
    for (int kind = 0; kind < SL__BLOCK_KINDS; kind++) {
        sl__printf(writer, "%s{\"text\": \"%s\", \"look\": %d}",
                   kind ? ",\n" : "\n", sl__block_kind_text(kind),
                   (int)sl__look_of(kind));
    }
    sl__puts(writer, "],\n\"whys\": [");
    for (int why = 0; why < SL__IDLE_REASONS; why++) {
        sl__printf(writer,
                   "%s{\"name\": \"%s\", \"text\": \"%s\", \"when\": \"%s\", "
                   "\"light\": ",
                   why ? ",\n" : "\n", sl__idle_texts[why].name,
                   sl__idle_texts[why].text, sl__idle_texts[why].when);
        put_colour(writer, sl__idle_colour((sl__idle_reason)why, false));
        sl__puts(writer, ", \"dark\": ");
        put_colour(writer, sl__idle_colour((sl__idle_reason)why, true));
        sl__putc(writer, '}');
    }
    sl__puts(writer, "]");
}

/* ------------------------------------------------------------- timelines -- */

static void put_member(sl__writer *writer, const char *key, double number)
{
    sl__printf(writer, "\"%s\": ", key);
    sl__put_number(writer, number);
    sl__puts(writer, ", ");
}

static void put_count(sl__writer *writer, const char *key, int64_t number)
{
    sl__printf(writer, "\"%s\": %lld, ", key, (long long)number);
}

static void put_track(sl__writer *writer, const sl__track *track)
{
    sl__putc(writer, '{');
    put_member(writer, "busy", track->busy);
    put_member(writer, "overhead", track->overhead);
    put_count(writer, "peak", track->peak_bytes);
    put_count(writer, "planned", track->planned_bytes);
    put_count(writer, "sent", (int64_t)track->sent);
    put_count(writer, "sentBytes", track->sent_bytes);
    sl__puts(writer, "\"idle\": [");
    for (int why = 0; why < SL__IDLE_REASONS; why++) {
        sl__puts(writer, why ? ", " : "");
        sl__put_number(writer, track->idle[why]);
    }
    sl__puts(writer, "]}");
}

static void put_range(sl__writer *writer, const char *key,
                      const sl__range *range)
{
    sl__printf(writer, "\"%s\": [", key);
    sl__put_number(writer, range->least);
    sl__puts(writer, ", ");
    sl__put_number(writer, range->most);
    sl__puts(writer, "], ");
}

/* Writes the costs and options of a simulation. */
static void put_given(sl__writer *writer, const sl__given *given)
{
    sl__printf(writer, "\"reading\": \"%s\", ",
               sl_reading_text(given->reading));
    for (int kind = 0; kind < SL_ACTION_KINDS; kind++) {
        sl_action_family family = sl_action_kind_family((sl_action_kind)kind);
        if (kind != SL_OVERLAP_F_B &&
            (family == SL_FAMILY_COMPUTE || family == SL_FAMILY_STATE))
            put_range(writer, sl_action_kind_text((sl_action_kind)kind),
                      &given->cost[kind]);
    }
    put_range(writer, "message", &given->message);
    put_range(writer, "messageBytes", &given->message_bytes);
    put_range(writer, "activationBytes", &given->activation_bytes);
    sl__puts(writer, "\"overlap\": ");
    sl__put_number(writer, given->overlap);
}

static void put_timeline(sl__writer *writer, const sl_timeline *timeline,
                         const sl__packed *data)
{
    sl__puts(writer, "{\"title\": ");
    put_string(writer, timeline->title);
    sl__printf(writer, ", \"measured\": %s, \"seconds\": %s, \"plan\": %s, ",
               timeline->measured ? "true" : "false",
               timeline->seconds ? "true" : "false",
               timeline->plan ? "true" : "false");
    put_count(writer, "microbatchBytes",
              timeline->seconds ? 0 : timeline->microbatch_bytes);
    sl__printf(writer, "\"sized\": %s, ",
               timeline->seconds || timeline->sized ? "true" : "false");
    put_count(writer, "ranks", timeline->ranks);
    put_count(writer, "stages", timeline->stages);
    put_count(writer, "microbatches", timeline->microbatches);
    put_member(writer, "begin", timeline->begin);
    put_member(writer, "end", timeline->end);
    put_member(writer, "makespan", timeline->makespan);
    put_member(writer, "bubble", timeline->bubble);
    put_member(writer, "tick", data->tick);
    put_count(writer, "offset", data->offset);
    size_t blocks = 0, comms = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        blocks += timeline->tracks[r].blocks.count;
        comms += timeline->tracks[r].comms.count;
    }
    put_count(writer, "blocks", (int64_t)blocks);
    put_count(writer, "comms", (int64_t)comms);
    put_count(writer, "messages", (int64_t)timeline->message_count);
    if (!timeline->measured) {
        sl__puts(writer, "\"given\": {");
        put_given(writer, &timeline->given);
        sl__puts(writer, "}, ");
    }
    sl__puts(writer, "\"tracks\": [");
    for (int r = 0; r < timeline->ranks; r++) {
        sl__puts(writer, r ? ",\n" : "\n");
        put_track(writer, &timeline->tracks[r]);
    }
    sl__puts(writer, "]}");
}

static void put_base64(sl__writer *writer, const uint8_t *data, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t three = (uint32_t)data[i] << 16 |
                         (uint32_t)(left > 1 ? data[i + 1] : 0) << 8 |
                         (left > 2 ? data[i + 2] : 0);
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63],
                        left > 1 ? digits[three >> 6 & 63] : '=',
                        left > 2 ? digits[three & 63] : '='};
        sl__put(writer, four, sizeof four);
    }
}

/* ----------------------------------------------------------------- curve -- */

typedef struct curve {
    const sl_view_point *points;
    size_t count;
} curve;

static double loss_of(const sl_view_point *point, bool validation)
{
    return validation ? point->validation : point->loss;
}

/* Writes [first step, last step, mean loss] for groups of steps, so few that
 * each is visible. Losses that are NaN are left out. */
static void put_losses(sl__writer *writer, const char *key, const curve *losses,
                       bool validation)
{
    enum { MOST = 1000 };
    size_t known = 0, in_group = 0, groups = 0;
    int64_t first = 0;
    double sum = 0;
    for (size_t i = 0; i < losses->count; i++)
        known += isfinite(loss_of(&losses->points[i], validation));
    size_t size = (known + MOST - 1) / MOST;
    sl__printf(writer, "\"%s\": [", key);
    for (size_t i = 0; i < losses->count; i++) {
        const sl_view_point *point = &losses->points[i];
        if (!isfinite(loss_of(point, validation)))
            continue;
        first = in_group ? first : point->step;
        sum += loss_of(point, validation);
        known--;
        if (++in_group < size && known > 0)
            continue;
        sl__printf(writer, "%s[%lld, %lld, ", groups++ ? ", " : "",
                   (long long)first, (long long)point->step);
        sl__put_number(writer, sum / (double)in_group);
        sl__putc(writer, ']');
        in_group = 0;
        sum = 0;
    }
    sl__putc(writer, ']');
}

static void put_curve(sl__writer *writer, const curve *losses)
{
    sl__puts(writer, ",\n\"curve\": {");
    put_losses(writer, "loss", losses, false);
    sl__puts(writer, ",\n");
    put_losses(writer, "validation", losses, true);
    sl__putc(writer, '}');
}

/* -------------------------------------------------------------- document -- */

static void put_title(sl__writer *writer, const sl_timeline *const *timelines,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sl__puts(writer, i ? ", " : "");
        sl__put_markup(writer, timelines[i]->title);
    }
}

static void put_document(sl__writer *writer,
                         const sl_timeline *const *timelines, size_t count,
                         const sl__packed *data, const curve *losses)
{
    sl__puts(writer,
             "<!doctype html>\n<html lang=\"en\">\n<head>\n"
             "<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\""
             "default-src 'none'; script-src 'unsafe-inline'; style-src "
             "'unsafe-inline'; form-action 'none'; base-uri 'none'\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, "
             "initial-scale=1\">\n<title>");
    put_title(writer, timelines, count);
    sl__puts(writer, " - Sluice</title>\n<style>\n");
    sl__puts(writer, (const char *)sl__page_style);
    sl__puts(writer, "</style>\n</head>\n<body>\n");
    sl__puts(writer, (const char *)sl__page_body);
    sl__puts(writer, "<script type=\"application/json\" id=\"about\">\n{");
    put_looks(writer);
    const sl_timeline *run, *plan;
    sl__find_plan(timelines, count, &run, &plan);
    for (size_t i = 0; i < count; i++) {
        if (timelines[i] == run)
            sl__printf(writer, ",\n\"run\": %zu", i);
        if (timelines[i] == plan)
            sl__printf(writer, ",\n\"plan\": %zu", i);
    }
    if (losses->count)
        put_curve(writer, losses);
    sl__puts(writer, ",\n\"timelines\": [");
    for (size_t i = 0; i < count; i++) {
        sl__puts(writer, i ? ",\n" : "\n");
        put_timeline(writer, timelines[i], &data[i]);
    }
    sl__puts(writer, "]}\n</script>\n");
    for (size_t i = 0; i < count; i++) {
        sl__printf(writer, "<script type=\"text/plain\" id=\"blocks-%zu\">", i);
        put_base64(writer, data[i].data, data[i].length);
        sl__puts(writer, "</script>\n");
    }
    sl__puts(writer, "<script>\n");
    sl__puts(writer, (const char *)sl__page_script);
    sl__puts(writer, "</script>\n</body>\n</html>\n");
}

sl_status sl_view_write_html(const sl_timeline *const *timelines, size_t count,
                             sl_write_fn write, void *context)
{
    SL__NEED(timelines, write);
    return sl_view_write_report(timelines, count, NULL, 0, write, context);
}

sl_status sl_view_write_report(const sl_timeline *const *timelines,
                               size_t count, const sl_view_point *points,
                               size_t point_count, sl_write_fn write,
                               void *context)
{
    SL__NEED(timelines, write);
    if (point_count)
        SL__NEED(points);
    const curve losses = {points, point_count};
    sl__packed data[SL_VIEW_MAX_TIMELINES] = {0};
    sl__writer *writer;
    if (count < 1 || count > SL_VIEW_MAX_TIMELINES)
        return sl_fail(SL_EINVAL,
                       "a page shows from 1 to %d timelines, not "
                       "%zu",
                       SL_VIEW_MAX_TIMELINES, count);
    SL__TRY(sl__check_given(timelines, count));
    SL__TRY(sl__alloc(1, sizeof *writer, &writer));
    sl_status status = SL_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = sl__timeline_encode(timelines[i], &data[i]);
    if (!status) {
        sl__writer_start(writer, write, context);
        put_document(writer, timelines, count, data, &losses);
        status = sl__writer_finish(writer);
    }
    for (size_t i = 0; i < SL_VIEW_MAX_TIMELINES; i++)
        free(data[i].data);
    free(writer);
    return status;
}

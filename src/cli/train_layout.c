/* SPDX-License-Identifier: MIT
 *
 * What a training run would be: `sluice train --dry-run`. */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>

static void print_stages(const sl_train_layout *layout)
{
    const sl_model *model = layout->model;
    double total = cli_total_cost(model);
    printf("stage  rank   parameters  compute  modules\n");
    for (int s = 0; s < sl_model_stage_count(model); s++) {
        char parameters[32], modules[120];
        const sl_stage_info *info = sl_model_stage(model, s);
        printf("%5d  %4d  %11s   %5.1f%%  %s\n", s, layout->rank_of[s],
               cli_amount((double)info->parameters, "", parameters),
               total > 0 ? 100 * info->cost / total : 0,
               cli_modules(info, modules, sizeof modules));
    }
}

/* What one rank sends to another in a step. */
typedef struct link {
    int count;
    double bytes;
} link;

static void add_messages(link *to, int microbatches, int64_t bytes)
{
    to->count += microbatches;
    to->bytes += (double)microbatches * (double)bytes;
}

static void print_messages(const sl_train_layout *layout)
{
    int count, unused;
    size_t ranks = (size_t)layout->ranks;
    const sl_edge *edges = sl_model_edges(layout->model, &count);
    const sl_crossing *crossings = sl_model_crossings(layout->model, &unused);
    link *links = calloc(ranks * ranks, sizeof *links);
    for (int i = 0; i < count && links; i++) {
        size_t from = (size_t)layout->rank_of[edges[i].from];
        size_t to = (size_t)layout->rank_of[edges[i].to];
        int64_t bytes = crossings[edges[i].crossing].bytes;
        if (from == to)
            continue;
        add_messages(&links[from * ranks + to], layout->microbatches, bytes);
        if (edges[i].gradient_name)
            add_messages(&links[to * ranks + from], layout->microbatches,
                         bytes);
    }
    if (ranks > 1)
        printf("\nmessages of a step\n");
    for (size_t i = 0; i < ranks * ranks && links; i++) {
        char bytes[32];
        if (links[i].count)
            printf("rank %zu -> rank %zu  %5d messages, %s\n", i / ranks,
                   i % ranks, links[i].count,
                   cli_amount(links[i].bytes, "B", bytes));
    }
    free(links);
}

static void print_memory(const sl_train_options *options,
                         const sl_train_layout *layout)
{
    double all = 0;
    int largest = 0;
    char sum[32], most[32], data[32];
    for (int r = 0; r < layout->ranks; r++) {
        all += (double)layout->bytes[r].planned;
        if (layout->bytes[r].planned > layout->bytes[largest].planned)
            largest = r;
    }
    printf("\nmemory, planned\n");
    fflush(stdout);
    sl_rank_bytes_write(layout->bytes, layout->ranks, sl_write_stdio, stdout);
    printf("all ranks %s; the largest is rank %d with %s\n",
           cli_amount(all, "B", sum), largest,
           cli_amount((double)layout->bytes[largest].planned, "B", most));
    double batch =
        2 * sizeof(int64_t) * (double)(options->batch * options->data.length);
    double text = sl_tokens_are_bytes(options->data.tokens)
                      ? (double)sl_tokens_count(options->data.tokens)
                      : 0;
    printf("beside that, %s of data in a process\n",
           cli_amount(batch + text, "B", data));
}

/* The cells that run, a line for each rank; of very many how many there are. */
static void print_cells(const sl_train_layout *layout)
{
    enum { MANY = 1000 };
    sl_extent extent = sl_schedule_extent(layout->lowered);
    printf("\nwhat runs\n");
    fflush(stdout);
    if (extent.cells <= MANY)
        (void)sl_schedule_write_csv(layout->lowered, sl_write_stdio, stdout);
    else
        printf("%zu cells, as `sluice lower --passes reduce-grad,send-recv,"
               "wait-send,send-budget=%d`\nwrites them of a schedule that has "
               "compute alone\n",
               extent.cells, SL_SEND_BUDGET);
}

void train_show_layout(const sl_train_options *options,
                       const sl_train_layout *layout)
{
    const sl_gpt2_config *config = &options->config;
    char sizes[80];
    sl_extent extent = sl_schedule_extent(options->schedule);
    printf("GPT-2: %d layers of width %d, %d heads, vocabulary %d%s\n"
           "%s, %lld sequences of %lld tokens in a step, in %s\n\n",
           config->layers, config->width, config->heads, config->vocabulary,
           config->tied ? ", tied" : "", cli_extent_text(&extent, sizes),
           (long long)options->batch, (long long)options->data.length,
           sl_dtype_text(options->precision));
    print_stages(layout);
    print_messages(layout);
    print_memory(options, layout);
    print_cells(layout);
}

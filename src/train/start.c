/* SPDX-License-Identifier: MIT
 *
 * First values of parameters: normal numbers that depend on seed, name and
 * place alone, so that a model starts the same on any layout. */
#include "train/train.h"

#include "base/memory.h"
#include "tensor/random.h"

#include <math.h>
#include <string.h>

static uint64_t key_of(uint64_t seed, const char *name)
{
    uint64_t key = sl__mix(seed + 0x9e3779b97f4a7c15u);
    for (; *name; name++)
        key = sl__mix(key ^ (unsigned char)*name) + 0x9e3779b97f4a7c15u;
    return key;
}

/* A standard normal number, by Box and Muller from two uniform ones. */
static double normal(uint64_t key, uint64_t place)
{
    uint64_t bits = sl__mix(key + place * 0x9e3779b97f4a7c15u);
    double radius = ((double)(bits >> 32) + 1) / 4294967296.0;
    double angle = (double)(bits & 0xffffffffu) / 4294967296.0;
    return sqrt(-2 * log(radius)) * cos(2 * 3.14159265358979323846 * angle);
}

static void fill(const sl_port *port, const sl_start *start, uint64_t key,
                 void *data)
{
    size_t count = (size_t)port->bytes / sl_dtype_bytes(port->dtype);
    for (size_t i = 0; i < count; i++) {
        double x = start->value;
        if (start->deviation != 0)
            x += start->deviation * normal(key, i);
        if (port->dtype == SL_F64)
            ((double *)data)[i] = x;
        else
            ((float *)data)[i] = (float)x;
    }
}

const char *sl__tied_name(const sl_model *model, int stage, const char *name)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int t = 0; t < count; t++) {
        for (int k = 0; k < ties[t].stage_count; k++) {
            if (ties[t].stages[k] == stage &&
                strcmp(ties[t].stage_names[k], name) == 0)
                return ties[t].stage_names[0];
        }
    }
    return name;
}

static sl_status start_stage(sl_pipeline *pipeline, int stage,
                             sl_start_fn start, const void *config,
                             uint64_t seed)
{
    const sl_stage *program_stage;
    sl_memory *memory;
    sl_status status =
        sl_pipeline_stage(pipeline, stage, &program_stage, &memory);
    int count =
        status ? 0 : sl_stage_port_count(program_stage, SL_PORT_PARAMETER);
    for (int i = 0; i < count && !status; i++) {
        sl_port port;
        void *data = NULL;
        status = sl_stage_port_at(program_stage, SL_PORT_PARAMETER, i, &port);
        if (!status)
            status = sl__alloc((size_t)port.bytes, 1, &data);
        if (status)
            break;
        sl_port named = port;
        named.name =
            sl__tied_name(sl_pipeline_model(pipeline), stage, port.name);
        sl_start how = start(config, &named);
        fill(&port, &how, key_of(seed, named.name), data);
        status = sl_memory_write(memory, &port, 0, data, (size_t)port.bytes);
        free(data);
    }
    return status;
}

sl_status sl_pipeline_start(sl_pipeline *pipeline, sl_start_fn start,
                            const void *config, uint64_t seed)
{
    int count;
    const int *stages = sl_pipeline_stages(pipeline, &count);
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++)
        status = start_stage(pipeline, stages[i], start, config, seed);
    return status;
}

/* --------------------------------------------------------------- models -- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), own = strlen(end);
    return length >= own && strcmp(text + length - own, end) == 0;
}

sl_start sl_gpt2_start(const void *gpt2_config, const sl_port *parameter)
{
    const sl_gpt2_config *config = gpt2_config;
    const char *name = parameter->name;
    if (ends_with(name, ".bias"))
        return (sl_start){0, 0};
    if (strstr(name, "ln_"))
        return (sl_start){1, 0};
    if (ends_with(name, "c_proj.weight"))
        return (sl_start){0, 0.02 / sqrt(2.0 * config->layers)};
    return (sl_start){0, 0.02};
}

sl_start sl_mlp_start(const void *mlp_config, const sl_port *parameter)
{
    (void)mlp_config;
    if (parameter->dims < 2)
        return (sl_start){0, 0};
    return (sl_start){0, 1 / sqrt((double)parameter->shape[1])};
}

/* SPDX-License-Identifier: MIT
 *
 * Initial weights: normal numbers that depend only on seed, parameter name and
 * index, so that the initial model is the same under any layout. */
#include "train/train.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "tensor/program.h"
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

/* A standard normal number, from two uniform ones by Box-Muller. */
static double normal(uint64_t key, uint64_t place)
{
    uint64_t bits = sl__mix(key + place * 0x9e3779b97f4a7c15u);
    double radius = ((double)(bits >> 32) + 1) / 4294967296.0;
    double angle = (double)(bits & 0xffffffffu) / 4294967296.0;
    return sqrt(-2 * log(radius)) * cos(2 * 3.14159265358979323846 * angle);
}

/* Fills in the numbers from index `first` on. */
static void fill(const sl_port *port, const sl_init *init, uint64_t key,
                 size_t first, size_t count, void *data)
{
    for (size_t i = 0; i < count; i++) {
        double x = init->mean;
        if (init->deviation != 0)
            x += init->deviation * normal(key, first + i);
        if (port->dtype == SL_F64)
            ((double *)data)[i] = x;
        else
            ((float *)data)[i] = (float)x;
    }
}

typedef struct initializer {
    const sl_model *model;
    sl_init_fn init;
    const void *config;
    uint64_t seed;
} initializer;

/* Initializes a parameter of callbacks, which take it as a whole. */
static sl_status init_whole(const sl__parameter *own, const sl_init *values,
                            uint64_t key)
{
    size_t bytes = (size_t)own->port.bytes;
    void *data;
    SL__TRY(sl__alloc(bytes, 1, &data));
    fill(&own->port, values, key, 0, bytes / sl_dtype_bytes(own->port.dtype),
         data);
    sl_status status = sl_memory_write(own->memory, &own->port, 0, data, bytes);
    free(data);
    return status;
}

/* Writes in pieces: a copy of the largest parameter would be memory that is not
 * planned. */
static sl_status init_one(void *context, const sl__parameter *own)
{
    const initializer *how = context;
    _Alignas(double) char piece[8192];
    sl_port named = own->port;
    named.name = sl__tied_name(how->model, own->stage, own->port.name);
    sl_init values = how->init(how->config, &named);
    uint64_t key = key_of(how->seed, named.name);
    size_t size = sl_dtype_bytes(own->port.dtype);
    size_t count = (size_t)own->port.bytes / size;
    if (!sl__port_memory(own->memory, &own->port, 0))
        return init_whole(own, &values, key);
    for (size_t at = 0; at < count; at += sizeof piece / size) {
        size_t now =
            count - at < sizeof piece / size ? count - at : sizeof piece / size;
        fill(&own->port, &values, key, at, now, piece);
        SL__TRY(sl__memory_write_piece(own->memory, &own->port, at * size,
                                       piece, now * size));
    }
    return SL_OK;
}

sl_status sl_pipeline_init_parameters(sl_pipeline *pipeline, sl_init_fn init,
                                      const void *config, uint64_t seed)
{
    SL__NEED(pipeline, init);
    if (init == sl_gpt2_init)
        SL__NEED(config);
    initializer how = {sl_pipeline_model(pipeline), init, config, seed};
    return sl__each_parameter(pipeline, SL_PORT_PARAMETER, init_one, &how);
}

/* --------------------------------------------------------------- models -- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), own = strlen(end);
    return length >= own && strcmp(text + length - own, end) == 0;
}

sl_init sl_gpt2_init(const void *gpt2_config, const sl_port *parameter)
{
    const sl_gpt2_config *config = gpt2_config;
    const char *name = parameter ? parameter->name : NULL;
    if (!config || !name || config->layers < 1)
        return (sl_init){0, 0};
    if (ends_with(name, ".bias"))
        return (sl_init){0, 0};
    if (strstr(name, "ln_"))
        return (sl_init){1, 0};
    if (ends_with(name, "c_proj.weight"))
        return (sl_init){0, 0.02 / sqrt(2.0 * config->layers)};
    return (sl_init){0, 0.02};
}

sl_init sl_mlp_init(const void *mlp_config, const sl_port *parameter)
{
    (void)mlp_config;
    if (!parameter || parameter->dims < 2)
        return (sl_init){0, 0};
    return (sl_init){0, 1 / sqrt((double)parameter->shape[1])};
}

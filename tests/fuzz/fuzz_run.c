/* SPDX-License-Identifier: MIT
 *
 * Any bytes may lie where a training run reads: a file of tokens, the
 * training.json of a checkpoint, the index of its weights. The first byte says
 * which. */
#include "fuzz.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[TEST_FOLDER_MAX];

static void clean_up(void)
{
    test_remove_folder(folder);
}

/* A file of the folder with these bytes in it. */
static const char *put(const char *name, const uint8_t *data, size_t size)
{
    static char path[TEST_FOLDER_MAX + 40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    must(file != NULL);
    fwrite(data, 1, size, file);
    fclose(file);
    return path;
}

static void read_tokens(const char *path)
{
    sl_tokens *tokens;
    int64_t some[16];
    if (sl_tokens_open(path, &tokens))
        return;
    int64_t count = sl_tokens_count(tokens);
    must(count > 0);
    int64_t few = count < 16 ? count : 16;
    must(!sl_tokens_read(tokens, 0, few, some));
    must(!sl_tokens_read(tokens, count - few, few, some));
    sl_tokens_close(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    sl_progress progress;
    sl_weights *weights;
    if (!started) {
        must(test_make_folder(folder));
        atexit(clean_up);
        started = true;
    }
    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0: read_tokens(put("t.bin", data + 1, size - 1)); break;
    case 1:
        put("training.json", data + 1, size - 1);
        sl_checkpoint_check(folder, &progress);
        break;
    default:
        put("model.safetensors.index.json", data + 1, size - 1);
        /* There are no files that it could name. */
        must(sl_weights_open(folder, &weights) != SL_OK);
    }
    return 0;
}

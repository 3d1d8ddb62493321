/* SPDX-License-Identifier: MIT
 *
 * Runs a fuzz target over every file in the folders named, where libFuzzer is
 * not linked in. */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

static void replay_file(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    must(file);
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    /* A copy of exactly this size, so that reading past it is seen. */
    uint8_t *copy = malloc(size ? size : 1);
    must(copy);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        must(folder);
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[1024];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            replay_file(path);
            files++;
        }
        closedir(folder);
    }
    printf("%d files\n", files);
    return files > 0 ? 0 : 1;
}

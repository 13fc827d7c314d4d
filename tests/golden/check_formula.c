/* Checks formula.h against the checksums in a golden file. Run by hand, from this folder:
 *
 *     cc -std=c11 -O2 -Wall -Wextra check_formula.c -ljansson -lm -o /tmp/check_formula
 *     /tmp/check_formula resnet50.safetensors
 *     /tmp/check_formula gpt2-tiny.safetensors
 */
#include "formula.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    uint64_t header_bytes;
    if (!file || fread(&header_bytes, 8, 1, file) != 1 || header_bytes > 1 << 20) {
        fprintf(stderr, "usage: check_formula FILE.safetensors\n");
        return 2;
    }
    char *text = malloc(header_bytes);
    if (fread(text, 1, header_bytes, file) != header_bytes) return 1;
    json_t *header = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, NULL);

    const char *key;
    json_t *entry;
    int n_right = 0, n_wrong = 0;
    json_object_foreach(header, key, entry) {
        if (strncmp(key, "checksum.", 9)) continue;
        const char *name = key + 9;
        /* The shape, which the checksum itself does not have, is a text beside it. */
        char shape_key[256];
        snprintf(shape_key, sizeof shape_key, "shape.%s", name);
        json_t *offsets = json_object_get(entry, "data_offsets");
        json_t *shape_entry = json_object_get(header, shape_key);
        json_t *shape_offsets = json_object_get(shape_entry, "data_offsets");
        int n_dims =
            (int)json_integer_value(json_array_get(json_object_get(shape_entry, "shape"), 0));
        int64_t shape[4], n = 1, wanted;
        fseek(file, (long)(8 + header_bytes) + json_integer_value(json_array_get(shape_offsets, 0)),
              SEEK_SET);
        if (n_dims > 4 || fread(shape, 8, (size_t)n_dims, file) != (size_t)n_dims) return 1;
        fseek(file, (long)(8 + header_bytes) + json_integer_value(json_array_get(offsets, 0)),
              SEEK_SET);
        if (fread(&wanted, 8, 1, file) != 1) return 1;

        for (int i = 0; i < n_dims; i++) n *= shape[i];
        float *x = malloc((size_t)n * sizeof *x);
        if (!strncmp(name, "input", 5))
            golden_fill(name, 2, 0, x, (size_t)n);
        else
            golden_fill_parameter(name, shape, n_dims, x);
        if (golden_checksum(x, (size_t)n) == (uint64_t)wanted) {
            n_right++;
        } else {
            n_wrong++;
            printf("%s differs\n", name);
        }
        free(x);
    }
    printf("%d tensors equal, %d differ\n", n_right, n_wrong);
    json_decref(header);
    free(text);
    fclose(file);
    return n_wrong != 0 || n_right == 0;
}

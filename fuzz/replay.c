/* Runs a fuzz target over the files of the folders it is given: a test with any compiler. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static int replay(const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END) != 0) {
        if (in) fclose(in);
        return 1;
    }
    long n = ftell(in);
    rewind(in);
    uint8_t *bytes = n < 0 ? NULL : malloc(n ? (size_t)n : 1);
    int failed = !bytes || fread(bytes, 1, (size_t)n, in) != (size_t)n;
    if (!failed) LLVMFuzzerTestOneInput(bytes, (size_t)n);
    free(bytes);
    fclose(in);
    return failed;
}

static int replay_folder(const char *folder, int *n_files) {
    DIR *d = opendir(folder);
    int failed = !d;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (replay(path)) {
            fprintf(stderr, "%s cannot be read\n", path);
            failed = 1;
        }
        ++*n_files;
    }
    if (d) closedir(d);
    return failed;
}

int main(int argc, char **argv) {
    int n_files = 0, failed = argc < 2;
    for (int i = 1; i < argc; i++) failed |= replay_folder(argv[i], &n_files);
    printf("%d inputs replayed\n", n_files);
    return failed || n_files == 0;
}

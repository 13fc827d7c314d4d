/* The program of all tests that register themselves with TEST_MAIN: `run TEST [CASE]` runs one
 * test, or its cases that match a pattern such as 'adam*'; `run` lists the tests. */
#include "test.h"

static test_file *files;

void test_register(test_file *file) {
    file->next = files;
    files = file;
}

/* Whether `source`, a path, is the file `name`.c. */
static bool is_file(const char *source, const char *name) {
    const char *slash = strrchr(source, '/'), *base = slash ? slash + 1 : source;
    size_t n = strlen(name);
    return !strncmp(base, name, n) && !strcmp(base + n, ".c");
}

int main(int argc, char **argv) {
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    for (test_file *f = files; f; f = f->next) {
        if (argc < 2)
            printf("%s\n", f->source);
        else if (is_file(f->source, argv[1]))
            return f->run();
    }
    if (argc < 2) return 0;
    fprintf(stderr, "there is no test '%s' in this build\n", argv[1]);
    return 2;
}

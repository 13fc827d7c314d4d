/* The program of all C tests without a main: `run TEST [CASE]` runs one test, or its cases that
 * match a pattern such as 'adam*'; `run` lists the tests. */
#include "test.h"

#include <fnmatch.h>

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

static bool has_case(const test_file *f, const char *pattern) {
    size_t k = 0;
    while (k < *f->n_cases && fnmatch(pattern, f->cases[k].name, 0)) k++;
    return k < *f->n_cases;
}

/* Runs the cases that match; all, if `pattern` is NULL. */
static int run_file(const test_file *f, const char *pattern) {
    if (pattern && !has_case(f, pattern)) {
        fprintf(stderr, "no case of %s matches '%s'; its cases are:\n", f->source, pattern);
        for (size_t k = 0; k < *f->n_cases; k++) fprintf(stderr, "  %s\n", f->cases[k].name);
        return 2;
    }
    if (pattern) cmocka_set_test_filter(pattern);
    return f->run();
}

int main(int argc, char **argv) {
    for (test_file *f = files; f; f = f->next) {
        if (argc < 2)
            printf("%s\n", f->source);
        else if (is_file(f->source, argv[1]))
            return run_file(f, argc > 2 ? argv[2] : NULL);
    }
    if (argc < 2) return 0;
    fprintf(stderr, "there is no test '%s' in this build\n", argv[1]);
    return 2;
}

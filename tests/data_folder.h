/* What the tests of files share: a fresh folder, files in it, expected failures. */
#pragma once

#include "test.h"

#include <unistd.h>

typedef struct folder {
    wf_context *ctx;
    char path[128];
    char file[400]; /* of the last folder_file */
} folder;

static inline int folder_setup(void **state) {
    const char *base = getenv("TMPDIR");
    folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(f->path, sizeof f->path, "%.80s/weft-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(f->path));
    assert_int_equal(wf_context_create(NULL, &f->ctx), WF_OK);
    *state = f;
    return 0;
}

static inline const char *folder_file(folder *f, const char *name) {
    snprintf(f->file, sizeof f->file, "%s/%s", f->path, name);
    return f->file;
}

/* Files in the folder; with `remove`, afterwards none. */
static inline int folder_count(folder *f, int remove_them) {
    int n = 0;
    DIR *d = opendir(f->path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        n++;
        if (remove_them) assert_int_equal(unlink(folder_file(f, e->d_name)), 0);
    }
    closedir(d);
    return n;
}

/* Also checks that the library gave back every block. */
static inline int folder_teardown(void **state) {
    folder *f = *state;
    folder_count(f, 1);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(wf_context_memory(f->ctx).n_live, 0);
    wf_context_destroy(f->ctx);
    free(f);
    return 0;
}

static inline const char *folder_write(folder *f, const char *name, const void *bytes, size_t n) {
    FILE *out = fopen(folder_file(f, name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    return f->file;
}

static inline void expect_sentence(const wf_context *ctx, const char *part) {
    if (!strstr(wf_context_error(ctx), part))
        fail_msg("expected a sentence with '%s', got '%s'", part, wf_context_error(ctx));
}

static inline void expect_failure(const wf_context *ctx, wf_status status, wf_status expected,
                                  const char *part) {
    if (status != expected)
        fail_msg("expected %s, got %s: %s", wf_status_name(expected), wf_status_name(status),
                 wf_context_error(ctx));
    expect_sentence(ctx, part);
}

/* Begins a test in a folder of its own, `f`. GCC warns of overlaps where it is inlined. */
#define TEST_IN(name, teardown)                                                                    \
    __attribute__((noinline)) static void name##_in(folder *f);                                    \
    TEST_CASE(name, .setup_func = folder_setup, .teardown_func = teardown) {                       \
        name##_in(*state);                                                                         \
    }                                                                                              \
    static void name##_in(folder *f)
#define TEST_IN_FOLDER(name) TEST_IN(name, folder_teardown)

/* ---- the n-th allocation fails, for every n ---- */

static inline void *failing_alloc(void *self, size_t bytes) {
    int *n_left = self;
    void *block = NULL;
    if ((*n_left)-- == 0) return NULL;
    return posix_memalign(&block, 64, bytes) ? NULL : block;
}

static inline void failing_free(void *self, void *block) {
    free(block);
}

/* Calls `work` on the path until all its allocations succeed. The others end with NO_MEMORY and
 * leave nothing behind. */
static inline void expect_failed_allocations(wf_status (*work)(wf_context *ctx, const char *path),
                                             const char *path) {
    wf_status status = WF_NO_MEMORY;
    for (int n = 1; status != WF_OK; n++) {
        int n_left = n; /* the context itself is the first */
        wf_context_config config = WF_CONTEXT_CONFIG_INIT;
        wf_context *ctx;
        config.allocator = (wf_allocator){failing_alloc, failing_free, &n_left};
        assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
        status = work(ctx, path);
        if (status != WF_OK) expect_failure(ctx, status, WF_NO_MEMORY, "no host memory left");
        assert_int_equal(wf_context_memory(ctx).n_live, 0);
        wf_context_destroy(ctx);
        assert_in_range(n, 1, 100);
    }
}

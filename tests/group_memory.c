/* A group whose making finds no memory, at whichever allocation: all ranks are told, and nothing of
 * it stays. */
#include "group_ranks.h"

#include <limits.h>

typedef struct scarce {
    const char *wire;
    long n_good;     /* allocations of rank 0 that succeed in the call */
    bool is_refused; /* of rank 0 */
} scarce;

/* Allocations of this thread that still succeed. */
static _Thread_local long n_left = LONG_MAX;

static void *scarce_alloc(void *self, size_t bytes) {
    void *block = NULL;
    return --n_left < 0 || posix_memalign(&block, 64, bytes) ? NULL : block;
}

static void scarce_free(void *self, void *block) {
    free(block);
}

/* Of `name`, as the kernel calls memory that is shared. */
static int n_mapped(const char *name) {
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) n += strstr(line, name) != NULL;
    fclose(maps);
    return n;
}

/* Makes another group, in the middle of which rank 0 may find no memory: the other does not wait
 * until the deadline, but is told. */
static const char *split_in_need(ranks_one *one) {
    scarce *s = one->self;
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    wf_group *g = NULL;
    config.wire = s->wire;
    if (one->rank == 0) n_left = s->n_good;
    wf_status status = wf_group_split(one->group, 0, 0, &config, &g);
    n_left = LONG_MAX;
    if (one->rank == 0) s->is_refused = status == WF_NO_MEMORY;
    /* The other may lack what rank 0 would have made. */
    bool is_told = status == WF_NO_MEMORY || (one->rank && status == WF_REMOTE);
    if (status == WF_OK) wf_group_destroy(g);
    return status == WF_OK || is_told
               ? NULL
               : ranks_text("%s: %s", wf_status_name(status), wf_context_error(one->ctx));
}

TEST_CASE(a_group_without_memory_leaves_nothing) {
    const char *const wires[] = {"inproc", "shm"};
    for (int w = 0; w < 2; w++)
        for (int n = 0, is_refused = 1; is_refused; n++) {
            scarce s = {.wire = wires[w], .n_good = n};
            wf_context_config config = WF_CONTEXT_CONFIG_INIT;
            wf_group_config group = WF_GROUP_CONFIG_INIT;
            wf_context *ctx;
            int n_open = test_descriptors(), n_groups = n_mapped("weft-group");
            int n_zero = n_mapped("/dev/zero");
            group.wire = wires[w];
            config.allocator = (wf_allocator){scarce_alloc, scarce_free, NULL};
            assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
            ranks_threads_in(ctx, 2, &group, split_in_need, &s);
            is_refused = s.is_refused;
            test_context_end(ctx);
            if (test_descriptors() != n_open || n_mapped("weft-group") != n_groups ||
                n_mapped("/dev/zero") != n_zero)
                fail_msg("%s: after allocation %d failed, %d descriptors, %d and %d mappings stay",
                         wires[w], n, test_descriptors() - n_open,
                         n_mapped("weft-group") - n_groups, n_mapped("/dev/zero") - n_zero);
            if (!is_refused) assert_true(n >= 2);
        }
}

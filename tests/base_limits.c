/* What control groups allow, of both versions, as the system and as containers show them.
 *
 * label: serial
 */
#include "base/limits.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct fake {
    char root[100];
} fake;

static void put(const fake *f, const char *path, const char *text) {
    char full[400];
    snprintf(full, sizeof full, "%s%s", f->root, path);
    for (char *slash = full + strlen(f->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fake begin(const char *cgroup, const char *mounts) {
    fake f;
    const char *folder = getenv("TMPDIR");
    snprintf(f.root, sizeof f.root, "%.60s/weft-limits-XXXXXX", folder ? folder : "/tmp");
    assert_non_null(mkdtemp(f.root));
    put(&f, "/proc/self/cgroup", cgroup);
    put(&f, "/proc/self/mountinfo", mounts);
    return f;
}

static void expect(const fake *f, double cpus, size_t bytes) {
    wf_limits all = wfi_limits_under("/nowhere"), found = wfi_limits_under(f->root);
    char command[200];
    int n_cores = cpus > 0 && cpus < all.n_cores ? (int)cpus : all.n_cores;
    assert_true(found.cpu_quota == cpus);
    assert_int_equal(found.memory_bytes, bytes);
    assert_int_equal(found.n_cores, n_cores > 1 ? n_cores : 1);
    snprintf(command, sizeof command, "rm -rf '%s'", f->root);
    assert_int_equal(system(command), 0);
}

#define V2 "30 23 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

TEST_CASE(version_2) {
    fake f = begin("0::/user/job\n", "22 1 0:3 / /proc rw - proc proc rw\n" V2);
    put(&f, "/cg/user/job/cpu.max", "max 100000\n");
    put(&f, "/cg/user/job/memory.max", "3000000000\n");
    put(&f, "/cg/user/cpu.max", "150000 100000\n");
    put(&f, "/cg/user/memory.max", "max\n");
    expect(&f, 1.5, 3000000000);
}

TEST_CASE(the_group_above_allows_less) {
    fake f = begin("0::/user/job\n", V2);
    put(&f, "/cg/user/job/cpu.max", "400000 100000\n");
    put(&f, "/cg/user/job/memory.max", "2000000\n");
    put(&f, "/cg/user/cpu.max", "50000 100000\n");
    put(&f, "/cg/memory.max", "1000000\n"); /* of a container's own namespace */
    expect(&f, 0.5, 1000000);
}

TEST_CASE(version_1_beside_an_empty_version_2) {
    fake f = begin("4:memory:/job\n1:cpuacct,cpu:/job\n0::/\n",
                   "40 31 0:30 / /cg/cpu rw - cgroup cgroup rw,cpuacct,cpu\n"
                   "41 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
                   "42 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put(&f, "/cg/cpu/job/cpu.cfs_quota_us", "100000\n");
    put(&f, "/cg/cpu/job/cpu.cfs_period_us", "100000\n");
    put(&f, "/cg/cpu/cpu.cfs_quota_us", "-1\n");
    put(&f, "/cg/cpu/cpu.cfs_period_us", "100000\n");
    put(&f, "/cg/memory/job/memory.limit_in_bytes", "536870912\n");
    put(&f, "/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    expect(&f, 1, 536870912);
}

TEST_CASE(a_container_sees_its_group_at_the_mount) {
    fake f = begin("4:memory:/docker/abc\n",
                   "41 31 0:32 /docker/abc /cg/memory ro - cgroup cgroup rw,memory\n");
    put(&f, "/cg/memory/memory.limit_in_bytes", "1048576\n");
    expect(&f, 0, 1048576);
}

TEST_CASE(without_groups_there_is_no_limit) {
    fake f = begin("", "no line at all\n- - -\n");
    expect(&f, 0, 0);
    f = begin("0::/gone\nno line\n:::\n", V2);
    expect(&f, 0, 0);
    f = begin("0::/job\n", V2);
    put(&f, "/cg/job/cpu.max", "junk\n");
    put(&f, "/cg/job/memory.max", "-5\n");
    expect(&f, 0, 0);
}

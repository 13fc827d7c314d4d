/* A store in a file: what becomes of files that somebody left, damaged, or may not read.
 *
 * label: serial
 */
#include "stores.h"

#include <fcntl.h>
#include <sys/stat.h>

TEST(the_last_removes_the_file) {
    wf_store *two[2];
    const char *path = file_url("two") + strlen("file://");
    for (int round = 0; round < 3; round++) {
        int64_t n;
        open_two(ctx, FILE_STORE, TEST_TIMEOUT_MS, two);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n));
        assert_int_equal(n, 0);
        TEST_OK(ctx, wf_store_set(two[0], "a", "", 0));
        wf_store_close(two[0]);
        assert_int_equal(access(path, F_OK), 0);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n));
        assert_int_equal(n, 1);
        wf_store_close(two[1]);
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fchmod(fileno(file), 0600), 0); /* whatever the umask */
    fclose(file);
}

static int file_starts(const char *path, const char *words) {
    char text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return n >= strlen(words) && !strncmp(text, words, strlen(words));
}

TEST(files_that_are_refused) {
    wf_store *store, *two[2];
    const char *url = file_url("two"), *path = url + strlen("file://");
    char copy[4096];
    wf_store_config config = config_of(url, 0, 2);
    /* An earlier run's: what a killed process leaves is a copy of what it had. */
    open_two(ctx, FILE_STORE, TEST_TIMEOUT_MS, two);
    TEST_OK(ctx, wf_store_set(two[0], "a", "b", 1));
    FILE *file = fopen(path, "r");
    size_t n = fread(copy, 1, sizeof copy, file);
    fclose(file);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "another process is rank 0 there");
    config.n_ranks = 3;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "in use by a job of 2 ranks");
    config.n_ranks = 2;
    close_two(two);
    write_file(path, copy, n);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "was left by an earlier run");
    assert_int_equal(access(path, F_OK), 0);
    /* Somebody's thesis. */
    write_file(path, "Chapter 1", 9);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_CORRUPT, "is not a weft store");
    assert_true(file_starts(path, "Chapter 1"));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_IO, "cannot be opened");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "not a regular file");
    unlink(path);
}

/* Half a record is what a killed writer leaves: it counts for nothing. Anything else is damage. */
/* Who else can write the file could take part in the job, or have it write elsewhere. */
TEST(files_of_others_are_refused) {
    wf_store *store;
    struct stat about;
    char path[128], other[128], url[160];
    snprintf(path, sizeof path, "%s/laid", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(url, sizeof url, "file://%s", path);
    wf_store_config config = config_of(url, 0, 2);
    write_file(other, "", 0);
    assert_int_equal(symlink(other, path), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "is refused: it is a link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(other, path), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "a hard link");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(chmod(path, 0666), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "other users may write to it");
    if (geteuid() == 0) { /* only root can give files away */
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                     "belongs to another user");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    assert_int_equal(stat(path, &about), 0); /* left as it was */
    assert_int_equal(about.st_size, 0);
    /* An empty one of one's own, as mktemp makes it, is taken, and nobody else reads it then. */
    assert_int_equal(chmod(path, 0644), 0);
    TEST_OK(ctx, wf_store_open(ctx, &config, &store));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    wf_store_close(store);
    assert_int_equal(access(path, F_OK), -1);
}

TEST(torn_and_damaged_logs) {
    wf_store *two[2];
    int64_t n;
    int fd;
    char got[4];
    size_t bytes;
    open_two(ctx, FILE_STORE, TEST_TIMEOUT_MS, two);
    TEST_OK(ctx, wf_store_set(two[0], "a", "b", 1));
    fd = open(file_url("two") + strlen("file://"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "\x20\0\0\0\x02", 5), 5);
    TEST_OK(ctx, wf_store_n_keys(two[1], &n));
    assert_int_equal(n, 1);
    TEST_OK(ctx, wf_store_set(two[1], "c", "d", 1));
    TEST_OK(ctx, wf_store_get(two[0], "c", got, sizeof got, &bytes));
    assert_int_equal(write(fd, "\xff\xff\xff\xff\xff", 5), 5);
    TEST_REFUSED(ctx, wf_store_n_keys(two[1], &n), WF_CORRUPT, "is damaged");
    close(fd);
    close_two(two);
}

TEST_FIXTURE(make_folder, remove_folder)

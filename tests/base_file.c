/* What is opened to be read is a regular file, and opening anything else neither succeeds nor
 * waits. What is written replaces a file as a whole, or leaves all as it was.
 *
 * label: serial
 */
#include "data_folder.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the disk, as this test wants it: in place of the system's ---- */

static int file_error, folder_error; /* errno; 0: it succeeds */
static int n_files_synced, n_folders_synced;

int fsync(int fd) {
    struct stat about;
    assert_int_equal(fstat(fd, &about), 0);
    bool is_folder = S_ISDIR(about.st_mode);
    ++*(is_folder ? &n_folders_synced : &n_files_synced);
    errno = is_folder ? folder_error : file_error;
    return errno ? -1 : 0;
}

/* ---- reading ---- */

static void expect_refused(folder *f, const char *path, const char *words) {
    int fd = -1;
    expect_failure(f->ctx, wf_file_open(f->ctx, path, &fd, NULL), WF_IO, words);
    expect_sentence(f->ctx, path);
    assert_int_equal(fd, -1);
}

TEST_IN_FOLDER(takes_regular_files) {
    int fd;
    uint64_t n_bytes;
    char link_path[4096];
    const char *path = folder_write(f, "x", "12345", 5);
    assert_int_equal(wf_file_open(f->ctx, path, &fd, &n_bytes), WF_OK);
    assert_int_equal(n_bytes, 5);
    close(fd);
    /* A data set is often a link to where it really lies. */
    snprintf(link_path, sizeof link_path, "%s/link", f->path);
    assert_int_equal(symlink("x", link_path), 0);
    assert_int_equal(wf_file_open(f->ctx, link_path, &fd, NULL), WF_OK);
    close(fd);
    assert_int_equal(unlink(link_path), 0);
}

TEST_IN_FOLDER(refuses_the_rest) {
    char path[4096];
    snprintf(path, sizeof path, "%s/pipe", f->path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(f, path, "is not a regular file, but a pipe");
    assert_int_equal(unlink(path), 0);
    expect_refused(f, path, "cannot be opened: No such file");
    expect_refused(f, f->path, "is not a regular file, but a folder");
    expect_refused(f, "/dev/null", "is not a regular file, but a device");
    expect_refused(f, "/dev/zero", "is not a regular file, but a device");
}

static void expect_content(folder *f, const char *name, const char *content) {
    char text[64] = "";
    FILE *file = fopen(folder_file(f, name), "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), strlen(content));
    fclose(file);
    assert_string_equal(text, content);
}

TEST_IN_FOLDER(replaces_as_a_whole) {
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "one", 3), WF_OK);
    expect_content(f, "x", "one");
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "", 0), WF_OK);
    expect_content(f, "x", "");
    assert_int_equal(folder_count(f, 0), 1);
}

/* A link may have been laid by somebody else, to a file of this user. */
TEST_IN_FOLDER(does_not_follow_links) {
    folder_write(f, "victim", "precious", 8);
    assert_int_equal(symlink("victim", folder_file(f, "x")), 0);
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "new", 3), WF_OK);
    expect_content(f, "victim", "precious");
    expect_content(f, "x", "new");
}

static int permissions_of(folder *f, const char *name) {
    struct stat about;
    assert_int_equal(stat(folder_file(f, name), &about), 0);
    return (int)(about.st_mode & 07777);
}

/* A report that only its owner could read is not opened to others by being written again; of a link
 * it does not matter where it leads. */
TEST_IN_FOLDER(keeps_permissions) {
    mode_t before = umask(002);
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "one", 3), WF_OK);
    assert_int_equal(permissions_of(f, "x"), 0664);
    assert_int_equal(chmod(folder_file(f, "x"), 0600), 0);
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "two", 3), WF_OK);
    assert_int_equal(permissions_of(f, "x"), 0600);
    umask(077);
    assert_int_equal(chmod(folder_file(f, "x"), 0640), 0);
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "three", 5), WF_OK);
    assert_int_equal(permissions_of(f, "x"), 0640);
    assert_int_equal(symlink("x", folder_file(f, "link")), 0);
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "link"), "four", 4), WF_OK);
    assert_int_equal(permissions_of(f, "link"), 0600);
    umask(before);
}

/* The bytes are on the disk before the name is theirs, and then the name is. */
TEST_IN_FOLDER(waits_for_the_disk) {
    n_files_synced = n_folders_synced = 0;
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "one", 3), WF_OK);
    assert_int_equal(n_files_synced, 1);
    assert_int_equal(n_folders_synced, 1);
    file_error = EIO;
    expect_failure(f->ctx, wf_file_replace(f->ctx, folder_file(f, "x"), "two", 3), WF_IO,
                   "cannot be flushed to disk: Input/output error; the previous file is");
    expect_failure(f->ctx, wf_file_replace(f->ctx, folder_file(f, "y"), "two", 3), WF_IO,
                   "y cannot be flushed to disk: Input/output error");
    assert_null(strstr(wf_context_error(f->ctx), "previous"));
    file_error = 0;
    expect_content(f, "x", "one");
    folder_error = EIO;
    expect_failure(f->ctx, wf_file_replace(f->ctx, folder_file(f, "x"), "three", 5), WF_IO,
                   "is in place, but its folder cannot be flushed to disk");
    expect_content(f, "x", "three");
    folder_error = EINVAL; /* of file systems that cannot do that */
    assert_int_equal(wf_file_replace(f->ctx, folder_file(f, "x"), "four", 4), WF_OK);
    folder_error = 0;
    assert_int_equal(folder_count(f, 0), 1);
}

TEST_IN_FOLDER(replaces_files_only) {
    char pipe[4096];
    snprintf(pipe, sizeof pipe, "%s/pipe", f->path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    expect_failure(f->ctx, wf_file_replace(f->ctx, pipe, "new", 3), WF_IO, "not a regular file");
    expect_failure(f->ctx, wf_file_replace(f->ctx, f->path, "new", 3), WF_IO, "not a regular file");
    assert_int_equal(folder_count(f, 0), 1);
}

int main(void) {
    return test_run(NULL, NULL);
}

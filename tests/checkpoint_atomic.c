/* Saving replaces a file in one step or leaves it as it was, and leaves nothing behind.
 *
 * label: serial
 */
#include "base/replace.h"
#include "data_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define N_LARGE 100000

static wf_status save(folder *f, float value, int n) {
    static float values[N_LARGE];
    for (int i = 0; i < n; i++) values[i] = value;
    wf_tensor_data tensor = {"a", WF_F32, {1, {n}}, values};
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", f->path);
    return wf_safetensors_write(f->ctx, path, &tensor, 1, NULL, 0);
}

static float saved_value(folder *f) {
    scoped_safetensors file;
    float value;
    wf_status status = wf_safetensors_open(f->ctx, folder_file(f, "model.safetensors"), &file);
    assert_int_equal(status, WF_OK);
    assert_int_equal(wf_safetensors_get(file, 0)->dim[0], 1);
    assert_int_equal(wf_safetensors_read(file, 0, &value, sizeof value), WF_OK);
    return value;
}

TEST_IN_FOLDER(replaces) {
    struct stat st;
    mode_t before = umask(027);
    assert_int_equal(save(f, 1, 1), WF_OK);
    umask(before);
    assert_int_equal(stat(folder_file(f, "model.safetensors"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(save(f, 2, 1), WF_OK);
    assert_true(saved_value(f) == 2);
    assert_int_equal(folder_count(f, 0), 1);
}

/* A limit on the size of files fails a write half way, as a full disk does. */
TEST_IN_FOLDER(survives_a_full_disk) {
    struct rlimit limit, low;
    assert_int_equal(save(f, 1, 1), WF_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t sizes[] = {0, 4, 50, 1000, 4 * N_LARGE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        low = limit;
        low.rlim_cur = sizes[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        wf_status status = save(f, 2, N_LARGE);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        expect_failure(f->ctx, status, WF_IO, "/model.safetensors cannot be written: File too");
        assert_true(saved_value(f) == 1);
        assert_int_equal(folder_count(f, 0), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
}

TEST_IN_FOLDER(names_what_is_in_the_way) {
    wf_safetensors_writer *w;
    wf_context *ctx = f->ctx;
    expect_failure(ctx, wf_safetensors_writer_create(ctx, "/nowhere/at/all/x", &w), WF_IO,
                   "/nowhere/at/all/x cannot be written: No such file");
    expect_failure(ctx, wf_safetensors_writer_create(ctx, f->path, &w), WF_IO,
                   "it exists and is not a regular file");
}

TEST_IN_FOLDER(aborts) {
    wf_safetensors_writer *w;
    wf_shape shape = {1, {1}};
    float value = 2;
    assert_int_equal(save(f, 1, 1), WF_OK);
    wf_status status =
        wf_safetensors_writer_create(f->ctx, folder_file(f, "model.safetensors"), &w);
    assert_int_equal(status, WF_OK);
    assert_int_equal(wf_safetensors_writer_add_tensor(w, "a", WF_F32, &shape), WF_OK);
    assert_int_equal(wf_safetensors_writer_write(w, 0, &value, 4), WF_OK);
    assert_int_equal(folder_count(f, 0), 2);
    wf_safetensors_writer_destroy(w);
    assert_int_equal(folder_count(f, 0), 1);
    assert_true(saved_value(f) == 1);
    wf_safetensors_writer_destroy(NULL);
}

/* A killed process leaves its temporary file; neither what another writes now nor a trap laid as a
 * link is written through. */
TEST_IN_FOLDER(passes_over_what_is_there) {
    wf_safetensors_writer *w;
    char name[64];
    assert_int_equal(wf_safetensors_writer_create(f->ctx, folder_file(f, "model.safetensors"), &w),
                     WF_OK);
    snprintf(name, sizeof name, ".weft-%ld-1.tmp", (long)getpid());
    assert_int_equal(symlink("target", folder_file(f, name)), 0);
    assert_int_equal(save(f, 3, 1), WF_OK);
    assert_true(saved_value(f) == 3);
    assert_int_not_equal(access(folder_file(f, "target"), F_OK), 0);
    assert_int_equal(folder_count(f, 0), 3); /* with what the first writer has open */
    wf_safetensors_writer_destroy(w);
    assert_int_equal(folder_count(f, 0), 2);
}

static bool is_there(folder *f, const char *name) {
    return access(folder_file(f, name), F_OK) == 0;
}

/* The process that it names may be dead, another one by now, or have this one's number. What has a
 * writer, which is said by its lock, stays, and so does all that only looks alike. */
TEST_IN_FOLDER(removes_leftovers) {
    static const char *const alike[] = {".weft-x.tmp", ".weft-7-1.tmp~", ".weft-7-01.tmp",
                                        ".weft--7-1.tmp", "weft-7-1.tmp"};
    char own[64];
    snprintf(own, sizeof own, ".weft-%ld-0.tmp", (long)getpid());
    folder_write(f, own, "old", 3);
    folder_write(f, ".weft-1-0.tmp", "old", 3);
    folder_write(f, ".weft-4194304-12.tmp", "old", 3);
    for (size_t k = 0; k < sizeof alike / sizeof *alike; k++) folder_write(f, alike[k], "old", 3);
    int fd = open(folder_write(f, ".weft-7-1.tmp", "new", 3), O_WRONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(save(f, 1, 1), WF_OK);
    assert_false(is_there(f, own));
    assert_false(is_there(f, ".weft-1-0.tmp"));
    assert_false(is_there(f, ".weft-4194304-12.tmp"));
    assert_true(is_there(f, ".weft-7-1.tmp"));
    for (size_t k = 0; k < sizeof alike / sizeof *alike; k++) assert_true(is_there(f, alike[k]));
    close(fd);
    assert_int_equal(save(f, 1, 1), WF_OK);
    assert_false(is_there(f, ".weft-7-1.tmp"));
}

static int count_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Who writes through keeps the lock, and leaves no descriptor; so does who joins. */
TEST_IN_FOLDER(writes_through) {
    wfi_replacement r, joined;
    int n = count_descriptors();
    for (int commits = 0; commits < 2; commits++) {
        char temporary[300];
        assert_int_equal(wfi_replacement_begin(f->ctx, folder_file(f, "x"), &r), WF_OK);
        snprintf(temporary, sizeof temporary, "%s/%s", f->path, r.temporary);
        assert_int_equal(wfi_replacement_join(f->ctx, f->file, temporary, &joined), WF_OK);
        assert_false(fcntl(r.fd, F_GETFL) & O_DSYNC || fcntl(joined.fd, F_GETFL) & O_DSYNC);
        assert_int_equal(wfi_replacement_write_through(&r), WF_OK);
        assert_int_equal(wfi_replacement_write_through(&joined), WF_OK);
        assert_true(fcntl(r.fd, F_GETFL) & O_DSYNC && fcntl(joined.fd, F_GETFL) & O_DSYNC);
        wfi_leftovers_remove(r.folder);
        assert_int_equal(access(temporary, F_OK), 0);
        assert_int_equal(wfi_replacement_write(&joined, "cd", 2, 2), WF_OK);
        assert_int_equal(wfi_replacement_write(&r, "ab", 2, 0), WF_OK);
        if (commits) assert_int_equal(wfi_replacement_commit(&r), WF_OK);
        wfi_replacement_end(&joined);
        wfi_replacement_end(&r);
        assert_int_equal(folder_count(f, 0), commits);
        assert_int_equal(count_descriptors(), n);
    }
    char text[8] = "";
    FILE *file = fopen(folder_file(f, "x"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 4);
    fclose(file);
    assert_string_equal(text, "abcd");
}

/* What is written goes with its folder, or is taken away there. */
TEST_IN_FOLDER(follows_its_folder) {
    char elsewhere[300];
    snprintf(elsewhere, sizeof elsewhere, "%s-moved", f->path);
    for (int commits = 0; commits < 2; commits++) {
        wfi_replacement r;
        assert_int_equal(wfi_replacement_begin(f->ctx, folder_file(f, "x"), &r), WF_OK);
        assert_int_equal(rename(f->path, elsewhere), 0);
        assert_int_equal(mkdir(f->path, 0700), 0);
        assert_int_equal(wfi_replacement_write(&r, "ab", 2, 0), WF_OK);
        if (commits) assert_int_equal(wfi_replacement_commit(&r), WF_OK);
        wfi_replacement_end(&r);
        assert_int_equal(folder_count(f, 0), 0);
        assert_int_equal(rmdir(f->path), 0);
        assert_int_equal(rename(elsewhere, f->path), 0);
        assert_int_equal(folder_count(f, 0), commits);
    }
}

TEST_IN_FOLDER(saves_here) {
    char before[4096];
    float value = 4;
    wf_tensor_data tensor = {"a", WF_F32, {1, {1}}, &value};
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->path), 0);
    wf_status status = wf_safetensors_write(f->ctx, "model.safetensors", &tensor, 1, NULL, 0);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, WF_OK);
    assert_true(saved_value(f) == 4);
}

/* ---- the n-th allocation fails, for every n ---- */

static wf_status write_and_read(wf_context *ctx, const char *path) {
    float value = 4;
    wf_tensor_data tensor = {"a", WF_F32, {1, {1}}, &value};
    wf_metadata note = {"k", "v"};
    wf_safetensors *file;
    wf_status status = wf_safetensors_write(ctx, path, &tensor, 1, &note, 1);
    if (status == WF_OK) status = wf_safetensors_open(ctx, path, &file);
    if (status == WF_OK) wf_safetensors_close(file);
    return status;
}

TEST_IN_FOLDER(survives_failed_allocations) {
    expect_failed_allocations(write_and_read, folder_file(f, "x"));
    assert_in_range(folder_count(f, 0), 0, 1);
}

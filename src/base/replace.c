#include "base/replace.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/file.h>

#define MAX_TEMPORARIES 1000 /* names tried; files of running writers use some */

static const char *name_of(const wfi_replacement *r) {
    const char *slash = strrchr(r->path, '/');
    return slash ? slash + 1 : r->path;
}

static wf_status io_error(const wfi_replacement *r, const char *what, int code) {
    bool has_previous = access(r->path, F_OK) == 0;
    return wfi_fail(r->ctx, WF_IO, "%s cannot be %s: %s%s", r->path, what, strerror(code),
                    has_previous ? "; the previous file is unchanged" : "");
}

/* The folder of "x" is ".", and that of "/x" is "/". */
static wf_status open_folder(wfi_replacement *r) {
    const char *name = name_of(r);
    char *folder = name == r->path ? wfi_strdup(r->ctx, ".")
                                   : wfi_sprintf(r->ctx, "%.*s", (int)(name - r->path), r->path);
    if (!folder) return WF_NO_MEMORY;
    r->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    wfi_free(r->ctx, folder);
    return r->folder < 0 ? io_error(r, "written", errno) : WF_OK;
}

/* Gives the new file the old file's permissions. Some file systems have no permissions to set. */
static void keep_permissions(const wfi_replacement *r) {
    struct stat old;
    if (fstatat(r->folder, name_of(r), &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode))
        (void)!fchmod(r->fd, old.st_mode & 0777);
}

static wf_status open_temporary(wfi_replacement *r) {
    struct stat st;
    if (fstatat(r->folder, name_of(r), &st, 0) == 0 && !S_ISREG(st.st_mode))
        return wfi_fail(r->ctx, WF_IO, "%s cannot be written: it exists and is not a regular file",
                        r->path);
    wfi_leftovers_remove(r->folder);
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        char *name = wfi_sprintf(r->ctx, WFI_TEMPORARY_NAME, (long)getpid(), i);
        if (!name) return WF_NO_MEMORY;
        r->fd = openat(r->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        int code = errno;
        if (r->fd >= 0 && wfi_leftovers_spare(r->fd)) {
            r->temporary = name;
            keep_permissions(r);
            return WF_OK;
        }
        if (r->fd >= 0) close(r->fd);
        bool is_taken = r->fd >= 0 || code == EEXIST;
        r->fd = -1;
        wfi_free(r->ctx, name);
        if (!is_taken) return io_error(r, "written", code);
    }
    return wfi_fail(r->ctx, WF_IO,
                    "%s cannot be written: %d files .weft-*.tmp are in its folder; remove them",
                    r->path, MAX_TEMPORARIES);
}

static wf_status open_as(wf_context *ctx, const char *path, const char *temporary,
                         wfi_replacement *r) {
    *r = (wfi_replacement){
        .ctx = ctx, .path = wfi_strdup(ctx, path), .folder = -1, .fd = -1, .locked = -1};
    if (!r->path) return WF_NO_MEMORY;
    if (!temporary) {
        WF_TRY(open_folder(r));
        return open_temporary(r);
    }
    r->fd = open(temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return r->fd < 0 ? io_error(r, "written", errno) : WF_OK;
}

wf_status wfi_replacement_join(wf_context *ctx, const char *path, const char *temporary,
                               wfi_replacement *r_out) {
    wfi_replacement r;
    wf_status status = open_as(ctx, path, temporary, &r);
    if (status == WF_OK)
        *r_out = r;
    else
        wfi_replacement_end(&r);
    return status;
}

wf_status wfi_replacement_begin(wf_context *ctx, const char *path, wfi_replacement *r_out) {
    return wfi_replacement_join(ctx, path, NULL, r_out);
}

/* The flag can only be had by opening the file again; the lock is the first descriptor's. */
wf_status wfi_replacement_write_through(wfi_replacement *r) {
    char own[40];
    snprintf(own, sizeof own, "/proc/self/fd/%d", r->fd);
    int fd = open(own, O_WRONLY | O_CLOEXEC | O_DSYNC);
    if (fd < 0) return io_error(r, "written", errno);
    r->locked = r->fd;
    r->fd = fd;
    return WF_OK;
}

static void close_file(wfi_replacement *r) {
    if (r->fd >= 0) close(r->fd);
    if (r->locked >= 0) close(r->locked);
    r->fd = r->locked = -1;
}

void wfi_replacement_end(wfi_replacement *r) {
    if (r->temporary) (void)unlinkat(r->folder, r->temporary, 0);
    close_file(r);
    if (r->folder >= 0) close(r->folder);
    r->folder = -1;
    wfi_free(r->ctx, r->temporary);
    wfi_free(r->ctx, r->path);
    r->path = r->temporary = NULL;
}

wf_status wfi_replacement_write(const wfi_replacement *r, const void *src, size_t n_bytes,
                                uint64_t offset) {
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n = pwrite(r->fd, (const char *)src + done, n_bytes - done,
                           (off_t)(offset + (uint64_t)done));
        if (n < 0 && errno == EINTR) continue;
        /* A write of nothing without an error means a full disk. */
        if (n <= 0) return io_error(r, "written", n < 0 ? errno : ENOSPC);
        done += (size_t)n;
    }
    return WF_OK;
}

/* The rename itself must survive a power cut. Some file systems cannot sync a folder and return
 * EINVAL, which is ignored. */
static wf_status sync_folder(const wfi_replacement *r) {
    if (fsync(r->folder) == 0 || errno == EINVAL) return WF_OK;
    return wfi_fail(r->ctx, WF_IO, "%s is in place, but its folder cannot be flushed to disk: %s",
                    r->path, strerror(errno));
}

wf_status wfi_replacement_sync(const wfi_replacement *r) {
    return fsync(r->fd) == 0 ? WF_OK : io_error(r, "flushed to disk", errno);
}

wf_status wfi_replacement_commit(wfi_replacement *r) {
    WF_TRY(wfi_replacement_sync(r));
    if (renameat(r->folder, r->temporary, r->folder, name_of(r)) != 0)
        return io_error(r, "moved into place", errno);
    wfi_free(r->ctx, r->temporary);
    r->temporary = NULL;
    close_file(r); /* not before the rename: an unlocked temporary file counts as stale */
    return sync_folder(r);
}

wf_status wf_file_replace(wf_context *ctx, const char *path, const void *bytes, size_t n_bytes) {
    wfi_replacement r;
    WF_TRY(wfi_replacement_begin(ctx, path, &r));
    wf_status status = wfi_replacement_write(&r, bytes, n_bytes, 0);
    if (status == WF_OK) status = wfi_replacement_commit(&r);
    wfi_replacement_end(&r);
    return status;
}

#include "base/file.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/file.h>

static const char *kind_name(mode_t mode) {
    return S_ISFIFO(mode)                   ? "a pipe"
           : S_ISDIR(mode)                  ? "a folder"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "something else";
}

/* Opening a pipe would wait for its other side, and a terminal could become the process's own:
 * hence the two flags, and the later test of the opened file's type. */
wf_status wfi_file_open(wf_context *ctx, const char *path, int flags, int *fd_out,
                        uint64_t *bytes_out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0 && errno == ELOOP && flags & O_NOFOLLOW)
        return wfi_fail(ctx, WF_IO,
                        "%s is a link, which may lead out of its folder; put the file itself there",
                        path);
    if (fd < 0) return wfi_fail(ctx, WF_IO, "%s cannot be opened: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0) {
        wf_status status = wfi_fail(ctx, WF_IO, "%s cannot be read: %s", path, strerror(errno));
        close(fd);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return wfi_fail(ctx, WF_IO, "%s is not a regular file, but %s", path,
                        kind_name(st.st_mode));
    }
    if (bytes_out) *bytes_out = (uint64_t)st.st_size;
    *fd_out = fd;
    return WF_OK;
}

wf_status wf_file_open(wf_context *ctx, const char *path, int *fd_out, uint64_t *bytes_out) {
    return wfi_file_open(ctx, path, 0, fd_out, bytes_out);
}

/* ---- whole files in memory ---- */

bool wfi_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static wf_status open_file(wf_context *ctx, const char *path, int *fd_out, size_t *n_bytes_out) {
    uint64_t n_bytes;
    WF_TRY(wf_file_open(ctx, path, fd_out, &n_bytes));
    *n_bytes_out = (size_t)n_bytes;
    return WF_OK;
}

wf_status wfi_file_size(wf_context *ctx, const char *path, size_t *n_bytes_out) {
    int fd;
    WF_TRY(open_file(ctx, path, &fd, n_bytes_out));
    close(fd);
    return WF_OK;
}

static wf_status read_all(wf_context *ctx, const char *path, int fd, uint8_t *dst, size_t n_bytes) {
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n = read(fd, dst + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return wfi_fail(ctx, WF_IO, "%s cannot be read at byte %zu: %s", path, done,
                            strerror(errno));
        if (n == 0)
            return wfi_fail(ctx, WF_IO, "%s became shorter while it was read: %zu of %zu bytes",
                            path, done, n_bytes);
        done += (size_t)n;
    }
    return WF_OK;
}

wf_status wfi_file_read_into(wf_context *ctx, const char *path, uint8_t *dst, size_t n_bytes) {
    int fd;
    size_t now_bytes;
    WF_TRY(open_file(ctx, path, &fd, &now_bytes));
    wf_status status =
        now_bytes == n_bytes
            ? read_all(ctx, path, fd, dst, n_bytes)
            : wfi_fail(ctx, WF_IO, "%s changed its length from %zu to %zu bytes while it was read",
                       path, n_bytes, now_bytes);
    close(fd);
    return status;
}

wf_status wfi_file_read(wf_context *ctx, const char *path, uint8_t **bytes_out,
                        size_t *n_bytes_out) {
    size_t n_bytes;
    WF_TRY(wfi_file_size(ctx, path, &n_bytes));
    uint8_t *bytes = wfi_alloc(ctx, n_bytes ? n_bytes : 1, 1, path);
    if (!bytes) return WF_NO_MEMORY;
    wf_status status = wfi_file_read_into(ctx, path, bytes, n_bytes);
    if (status != WF_OK) {
        wfi_free(ctx, bytes);
        return status;
    }
    *bytes_out = bytes;
    *n_bytes_out = n_bytes;
    return WF_OK;
}

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

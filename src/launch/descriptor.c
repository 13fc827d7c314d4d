#include "launch/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static wf_status fail(wf_context *ctx, const char *what) {
    const char *advice = errno == EMFILE ? "; ulimit -n allows more" : "";
    return wfi_fail(ctx, WF_DEVICE, "launch: %s: %s%s", what, strerror(errno), advice);
}

wf_status wfi_descriptor_high(wf_context *ctx, int fd, const char *made_by, int *fd_out) {
    if (fd < 0) return fail(ctx, made_by);
    if (fd <= 2) {
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        wf_status status = moved < 0 ? fail(ctx, made_by) : WF_OK;
        close(fd);
        if (status != WF_OK) return status;
        fd = moved;
    }
    *fd_out = fd;
    return WF_OK;
}

wf_status wfi_descriptor_pipe(wf_context *ctx, int ends[2]) {
    int made[2];
    if (pipe2(made, O_CLOEXEC) < 0) return fail(ctx, "pipe");
    wf_status status = wfi_descriptor_high(ctx, made[0], "pipe", &ends[0]);
    if (status != WF_OK) {
        close(made[1]);
        return status;
    }
    status = wfi_descriptor_high(ctx, made[1], "pipe", &ends[1]);
    if (status != WF_OK) close(ends[0]);
    return status;
}

void wfi_descriptor_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* How processes that nobody introduced to each other find the job's segment: rank 0 listens
 * on an abstract socket, a name that is no file and goes with the process, and hands everyone
 * who knows the job's name, and is the same user, the descriptor. */
#include "base/clock.h"
#include "comm/control.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 20

static socklen_t address_of(const char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weft-%u-%s",
                     (unsigned)getuid(), name);
    size_t most = sizeof address->sun_path - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       ((size_t)n < most ? (size_t)n : most));
}

static bool is_same_user(int socket) {
    struct ucred who;
    socklen_t bytes = sizeof who;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == getuid();
}

/* ---- rank 0 ---- */

static bool send_descriptor(int socket, int fd) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'w';
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

static wf_status serve(wf_context *ctx, int listener, int fd, int n_ranks, int64_t timeout_ms) {
    int64_t deadline_ms = wfi_now_ms() + timeout_ms;
    for (int n_served = 1; n_served < n_ranks;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        int64_t left_ms = deadline_ms - wfi_now_ms();
        if (left_ms <= 0)
            return wfi_fail(ctx, WF_TIMEOUT,
                            "rank 0 waited %lld ms for %d processes; %d of them have not come",
                            (long long)timeout_ms, n_ranks, n_ranks - n_served);
        if (poll(&ready, 1, (int)wfi_min_i64(left_ms, 1000)) <= 0) continue;
        int other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (other < 0) continue;
        n_served += is_same_user(other) && send_descriptor(other, fd);
        close(other);
    }
    return WF_OK;
}

static wf_status host(wf_context *ctx, const char *name, int n_ranks, int64_t timeout_ms,
                      int *fd_out) {
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, bytes) ||
        listen(listener, n_ranks)) {
        int error = errno;
        if (listener >= 0) close(listener);
        return wfi_fail(ctx, WF_DEVICE,
                        "rank 0 cannot listen for the job '%s': %s; is another job of that name "
                        "running?",
                        name, strerror(error));
    }
    int fd = memfd_create("weft-control", MFD_CLOEXEC);
    wf_status status = WF_OK;
    if (fd < 0 || ftruncate(fd, (off_t)wfi_control_bytes()))
        status =
            wfi_fail(ctx, WF_NO_MEMORY, "no memory for the job's segment: %s", strerror(errno));
    if (status == WF_OK) status = serve(ctx, listener, fd, n_ranks, timeout_ms);
    close(listener);
    if (status == WF_OK)
        *fd_out = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* ---- the others ---- */

static int receive_descriptor(int socket) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int fd = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static int visit(const struct sockaddr_un *address, socklen_t bytes, int64_t timeout_ms) {
    struct timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000 + 1000};
    int fd = -1, host = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (host < 0) return -1;
    if (connect(host, (const struct sockaddr *)address, bytes) == 0 && is_same_user(host) &&
        setsockopt(host, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0)
        fd = receive_descriptor(host);
    close(host);
    return fd;
}

static wf_status guest(wf_context *ctx, const char *name, int rank, int64_t timeout_ms,
                       int *fd_out) {
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    struct timespec nap = {0, RETRY_MS * 1000000};
    int64_t deadline_ms = wfi_now_ms() + timeout_ms;
    for (;;) {
        *fd_out = visit(&address, bytes, timeout_ms);
        if (*fd_out >= 0) return WF_OK;
        if (wfi_now_ms() > deadline_ms)
            return wfi_fail(ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms for rank 0 of the job '%s'; ranks of one job "
                            "have to be started on one machine, by one user",
                            rank, (long long)timeout_ms, name);
        nanosleep(&nap, NULL);
    }
}

wf_status wfi_rendezvous(wf_context *ctx, const char *name, int rank, int n_ranks,
                         int64_t timeout_ms, int *fd_out) {
    return rank == 0 ? host(ctx, name, n_ranks, timeout_ms, fd_out)
                     : guest(ctx, name, rank, timeout_ms, fd_out);
}

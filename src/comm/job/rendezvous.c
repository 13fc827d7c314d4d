/* Rendezvous of processes without a common launcher. Rank 0 listens on an abstract socket, which is
 * not a file and ends with the process. Every process of the same user that connects under the
 * job's name receives the segment's descriptor. */
#include "base/clock.h"
#include "comm/job/control.h"

#include <errno.h>
#include <fcntl.h>
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
#define LOOK_MS  100 /* how often rank 0 checks for ranks that wait in MPI */

static socklen_t address_of(const char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weft-%u-%s",
                     (unsigned)getuid(), name);
    size_t most = sizeof address->sun_path - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       ((size_t)n < most ? (size_t)n : most));
}

/* The address where a rank with the wire mpi listens while it waits for the others in MPI. */
static socklen_t mpi_address_of(const char *name, int rank, struct sockaddr_un *address) {
    char own_name[160];
    snprintf(own_name, sizeof own_name, "mpi%d-%s", rank, name);
    return address_of(own_name, address);
}

static bool is_same_user(int socket) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == getuid();
}

/* ---- ranks with another wire ---- */

int wfi_rendezvous_by_mpi(const char *name, int rank) {
    struct sockaddr_un address;
    socklen_t bytes = mpi_address_of(name, rank, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (bind(fd, (struct sockaddr *)&address, bytes) == 0 && listen(fd, SOMAXCONN) == 0))
        return fd;
    close(fd);
    return -1;
}

int wfi_rendezvous_refused_by(int seen) {
    int32_t rank = -1;
    struct pollfd ready = {.fd = seen, .events = POLLIN};
    if (seen < 0 || poll(&ready, 1, 0) <= 0) return -1;
    int other = accept4(seen, NULL, NULL, SOCK_CLOEXEC);
    struct timeval patience = {1, 0};
    bool is_reported =
        other >= 0 && is_same_user(other) &&
        setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        recv(other, &rank, sizeof rank, MSG_WAITALL) == (ssize_t)sizeof rank;
    if (other >= 0) close(other);
    return is_reported ? rank : -1;
}

/* Fails if that rank waits in MPI, where it cannot find this rank; it is notified, too. */
static wf_status refuse_mpi(wf_context *ctx, const char *name, int own_rank, int rank) {
    struct sockaddr_un address;
    socklen_t bytes = mpi_address_of(name, rank, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_there =
        fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) == 0 && is_same_user(fd);
    if (is_there) (void)send(fd, &(int32_t){own_rank}, sizeof(int32_t), MSG_NOSIGNAL);
    if (fd >= 0) close(fd);
    if (!is_there) return WF_OK;
    return wfi_fail(ctx, WF_REMOTE,
                    "rank %d was started with the wire mpi, rank %d with shared memory: all ranks "
                    "need the same",
                    rank, own_rank);
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

/* The first message of a joining rank. Rank 0 replies with one byte. */
typedef struct join_request {
    int32_t rank, n_ranks;
} join_request;
enum { WELCOME = 'w', RANK_IS_TAKEN = 'r', OTHER_NUMBER = 'n' };

typedef struct join_list {
    bool *has_joined; /* [n_ranks] */
    int n_ranks, n_missing;
} join_list;

static wf_status receive_join(wf_context *ctx, const char *name, int socket, int fd,
                              join_list *list) {
    struct timeval patience = {1, 0};
    join_request request = {-1, 0};
    char refusal = RANK_IS_TAKEN;
    if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        recv(socket, &request, sizeof request, MSG_WAITALL) != (ssize_t)sizeof request ||
        request.rank < 1)
        return WF_OK; /* not a rank of weft */
    if (request.n_ranks != list->n_ranks) {
        refusal = OTHER_NUMBER;
        (void)send(socket, &refusal, 1, MSG_NOSIGNAL);
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "rank %d gives the job '%s' %d ranks, rank 0 gives it %d", request.rank,
                        name, request.n_ranks, list->n_ranks);
    }
    if (request.rank >= request.n_ranks || list->has_joined[request.rank]) {
        (void)send(socket, &refusal, 1, MSG_NOSIGNAL);
        return WF_OK;
    }
    if (!send_descriptor(socket, fd)) return WF_OK;
    list->has_joined[request.rank] = true;
    list->n_missing--;
    return WF_OK;
}

static wf_status give_up(wf_context *ctx, const char *name, const join_list *list,
                         int64_t timeout_ms) {
    wfi_text missing;
    wfi_text_init(&missing, ctx);
    int n = 0;
    for (int r = 1; r < list->n_ranks; r++)
        if (!list->has_joined[r]) wfi_text_add(&missing, "%s%d", n++ ? ", " : "", r);
    wf_status status = wfi_fail(
        ctx, WF_TIMEOUT, "rank 0 waited %lld ms for the job '%s': rank%s %s of %d %s not arrived",
        (long long)timeout_ms, name, n == 1 ? "" : "s", missing.data ? missing.data : "",
        list->n_ranks, n == 1 ? "has" : "have");
    wfi_free(ctx, missing.data);
    return status;
}

static wf_status serve(wf_context *ctx, const char *name, int listener, int fd, join_list *list,
                       int64_t timeout_ms) {
    int64_t deadline_ms = wfi_now_ms() + timeout_ms;
    while (list->n_missing) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        int64_t left_ms = deadline_ms - wfi_now_ms();
        if (left_ms <= 0) return give_up(ctx, name, list, timeout_ms);
        for (int r = 1; r < list->n_ranks; r++)
            if (!list->has_joined[r]) WF_TRY(refuse_mpi(ctx, name, 0, r));
        if (poll(&ready, 1, (int)wfi_min_i64(left_ms, LOOK_MS)) <= 0) continue;
        int other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (other < 0) continue;
        wf_status status = is_same_user(other) ? receive_join(ctx, name, other, fd, list) : WF_OK;
        close(other);
        if (status != WF_OK) return status;
    }
    return WF_OK;
}

wf_status wfi_control_segment(wf_context *ctx, int n_ranks, int *fd_out) {
    int fd = memfd_create("weft-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)wfi_control_bytes(n_ranks)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        *fd_out = fd;
        return WF_OK;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    return wfi_fail(ctx, WF_NO_MEMORY, "no memory for the job's segment: %s", strerror(error));
}

static wf_status host(wf_context *ctx, const char *name, int n_ranks, int64_t timeout_ms,
                      int *fd_out) {
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    int fd = -1, listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, bytes) ||
        listen(listener, n_ranks)) {
        int error = errno;
        if (listener >= 0) close(listener);
        return wfi_fail(ctx, error == EADDRINUSE ? WF_INVALID_ARG : WF_DEVICE,
                        "rank 0 cannot listen for the job '%s': %s; is another job of that name "
                        "running?",
                        name, strerror(error));
    }
    join_list list = {.n_ranks = n_ranks, .n_missing = n_ranks - 1};
    list.has_joined = wfi_alloc(ctx, (size_t)n_ranks, sizeof *list.has_joined, "a job's ranks");
    wf_status status = list.has_joined ? wfi_control_segment(ctx, n_ranks, &fd) : WF_NO_MEMORY;
    if (status == WF_OK) status = serve(ctx, name, listener, fd, &list, timeout_ms);
    wfi_free(ctx, list.has_joined);
    close(listener);
    if (status == WF_OK)
        *fd_out = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* ---- the others ---- */

/* The segment of another version has another size, and reading past its end would kill the process.
 */
static wf_status check_segment(wf_context *ctx, const char *name, int *fd) {
    if (wfi_control_room(*fd)) return WF_OK;
    close(*fd);
    *fd = -1;
    return wfi_fail(ctx, WF_REMOTE,
                    "rank 0 of the job '%s' uses another version of weft: all ranks need the same",
                    name);
}

/* Returns the reply (0: none); *fd_out: the descriptor, or -1. */
static char receive_descriptor(int socket, int *fd_out) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    *fd_out = -1;
    /* A signal interrupts this, and so does SIGCONT, because the socket has a timeout. Rank 0 sends
     * the descriptor only once. */
    do n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != 1) return 0;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof *fd_out))
        memcpy(fd_out, CMSG_DATA(header), sizeof *fd_out);
    return byte;
}

static char visit(const struct sockaddr_un *address, socklen_t bytes, const join_request *request,
                  int64_t timeout_ms, int *fd_out) {
    struct timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000 + 1000};
    char reply = 0;
    int host = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *fd_out = -1;
    if (host < 0) return 0;
    if (connect(host, (const struct sockaddr *)address, bytes) == 0 && is_same_user(host) &&
        setsockopt(host, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        send(host, request, sizeof *request, MSG_NOSIGNAL) == (ssize_t)sizeof *request)
        reply = receive_descriptor(host, fd_out);
    close(host);
    return reply;
}

static wf_status join_host(wf_context *ctx, const char *name, const join_request *request,
                           int64_t timeout_ms, int *fd_out) {
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    struct timespec nap = {0, RETRY_MS * 1000000};
    int64_t deadline_ms = wfi_now_ms() + timeout_ms;
    for (;;) {
        char reply = visit(&address, bytes, request, timeout_ms, fd_out);
        if (*fd_out >= 0) return check_segment(ctx, name, fd_out);
        if (reply == RANK_IS_TAKEN)
            return wfi_fail(
                ctx, WF_INVALID_ARG,
                "another process is rank %d of the job '%s'; has another job that name?",
                request->rank, name);
        if (reply == OTHER_NUMBER)
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "rank %d is one of %d, but rank 0 of the job '%s' has another number",
                            request->rank, request->n_ranks, name);
        WF_TRY(refuse_mpi(ctx, name, request->rank, 0));
        if (wfi_now_ms() > deadline_ms)
            return wfi_fail(ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms for rank 0 of the job '%s'; ranks of one job "
                            "have to be started on one machine, by one user",
                            request->rank, (long long)timeout_ms, name);
        nanosleep(&nap, NULL);
    }
}

wf_status wfi_rendezvous(wf_context *ctx, const char *name, int rank, int n_ranks,
                         int64_t timeout_ms, int *fd_out) {
    join_request request = {rank, n_ranks};
    return rank == 0 ? host(ctx, name, n_ranks, timeout_ms, fd_out)
                     : join_host(ctx, name, &request, timeout_ms, fd_out);
}

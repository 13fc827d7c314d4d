/* A tcp store: rank 0 has the table and serves it (server.c), the other ranks are clients. The
 * store works within one machine. Traffic between machines needs more than a token and goes over
 * MPI. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/env.h"
#include "comm/store/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG     128
#define PATIENCE_MS 5000 /* for a client that stops within a message */

typedef struct address {
    struct sockaddr_storage at;
    socklen_t bytes;
    int port;
} address;

typedef struct tcp_store {
    wfi_store_server *server; /* rank 0's; NULL: this rank is a client */
    int fd;                   /* -1: disconnected */
    bool was_closed;          /* by the other end */
    uint8_t message[4 + WFI_STORE_MAX_MESSAGE];
} tcp_store;

/* ---- addresses ---- */

static wf_status refuse_url(const wf_store *store) {
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store '%.200s': it takes tcp://127.0.0.1:PORT, with a port from 1 to 65535",
                    store->url);
}

static bool read_port(const char *text, int *port_out) {
    if (!*text || strlen(text) > 5 || strspn(text, "0123456789") != strlen(text)) return false;
    *port_out = atoi(text);
    return *port_out <= 65535;
}

/* Host names are not resolved, as that waits for other machines. */
static wf_status read_address(const wf_store *store, address *out) {
    const char *begin = store->url + strlen("tcp://"), *colon = strrchr(begin, ':');
    char host[64];
    *out = (address){0};
    if (!colon || !read_port(colon + 1, &out->port) || (!out->port && store->rank))
        return refuse_url(store);
    size_t n = (size_t)(colon - begin);
    if (n > 2 && *begin == '[' && begin[n - 1] == ']') begin++, n -= 2;
    snprintf(host, sizeof host, "%.*s", (int)wfi_min_i64((int64_t)n, 63), begin);
    if (!strcmp(host, "localhost")) snprintf(host, sizeof host, "127.0.0.1");
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->at;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1 && ntohl(v4->sin_addr.s_addr) >> 24 == 127) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)out->port);
        out->bytes = sizeof *v4;
        return WF_OK;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)out->port);
        out->bytes = sizeof *v6;
        return WF_OK;
    }
    return wfi_fail(store->ctx, WF_UNSUPPORTED,
                    "store %.200s: '%s' is not a loopback address; it takes 127.0.0.1, localhost "
                    "or [::1]; across machines start the ranks by mpirun",
                    store->url, host);
}

/* ---- rank 0 ---- */

static wf_status fail_listen(const wf_store *store, const address *where) {
    if (errno == EADDRINUSE)
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store %.200s: port %d is taken, by another job or another program; give "
                        "this job another port",
                        store->url, where->port);
    return wfi_fail(store->ctx, WF_DEVICE, "store %.200s: port %d cannot be listened at: %s",
                    store->url, where->port, strerror(errno));
}

/* Writes the port that the system has chosen to the url. */
static wf_status keep_port(wf_store *store, int listener) {
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    getsockname(listener, (struct sockaddr *)&at, &bytes);
    uint16_t port = at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port;
    char *url = wfi_sprintf(store->ctx, "%.*s:%d", (int)(strrchr(store->url, ':') - store->url),
                            store->url, ntohs(port));
    if (!url) return WF_NO_MEMORY;
    wfi_free(store->ctx, store->url);
    store->url = url;
    return WF_OK;
}

static wf_status host(wf_store *store, const address *where, const char *token, tcp_store *t) {
    int yes = 1, fd = socket(where->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Connections of an earlier job that the kernel still remembers do not block the port. */
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&where->at, where->bytes) ||
        listen(fd, BACKLOG)) {
        wf_status status = fail_listen(store, where);
        if (fd >= 0) close(fd);
        return status;
    }
    wf_status status = keep_port(store, fd);
    if (status != WF_OK) {
        close(fd);
        return status;
    }
    return wfi_store_server_start(store->ctx, fd, token,
                                  wfi_min_i64(PATIENCE_MS, store->timeout_ms), &t->server);
}

/* ---- the others ---- */

static wf_status lose(const wf_store *store, tcp_store *t, wf_status status, const char *why) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    if (status == WF_TIMEOUT)
        return wfi_fail(store->ctx, status, "rank %d waited %lld ms for a reply of %.200s, but %s",
                        store->rank, (long long)store->timeout_ms, store->url, why);
    return wfi_fail(store->ctx, status, "rank %d has lost the store %.200s: %s", store->rank,
                    store->url, why);
}

/* Sends or receives all bytes. False: errno has the reason; 0: the other end has closed. */
static bool transfer(int fd, uint8_t *bytes, size_t n, bool sends, int64_t deadline_ms) {
    for (size_t n_done = 0; n_done < n;) {
        struct pollfd ready = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
        int64_t left_ms = deadline_ms - wfi_now_ms();
        if (poll(&ready, 1, (int)wfi_max_i64(0, wfi_min_i64(left_ms, 1000))) < 1) {
            errno = ETIMEDOUT;
            if (left_ms <= 0) return false;
            continue;
        }
        ssize_t now = sends ? send(fd, bytes + n_done, n - n_done, MSG_NOSIGNAL)
                            : recv(fd, bytes + n_done, n - n_done, 0);
        if (now == 0) errno = 0;
        if (now == 0 || (now < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (now > 0) n_done += (size_t)now;
    }
    return true;
}

static wf_status fail_transfer(const wf_store *store, tcp_store *t) {
    if (errno == ETIMEDOUT)
        return lose(store, t, WF_TIMEOUT, "none came; does another program use this port?");
    t->was_closed = true;
    return lose(store, t, WF_REMOTE,
                errno ? strerror(errno) : "rank 0 has closed it, has ended, or refuses this rank");
}

static wf_status request(wf_store *store, tcp_store *t, const wfi_store_request *r,
                         int64_t deadline_ms, wfi_store_reply *reply_out) {
    size_t n = wfi_store_request_write(r, t->message + 4);
    if (t->fd < 0) return lose(store, t, WF_REMOTE, "the connection broke before");
    wfi_put_number(t->message, 4, (uint32_t)n);
    if (!transfer(t->fd, t->message, 4 + n, true, deadline_ms) ||
        !transfer(t->fd, t->message, 4, false, deadline_ms))
        return fail_transfer(store, t);
    n = wfi_get_number(t->message, 4);
    if (n > WFI_STORE_MAX_MESSAGE) return lose(store, t, WF_REMOTE, "it is another program's port");
    if (!transfer(t->fd, t->message + 4, n, false, deadline_ms)) return fail_transfer(store, t);
    if (!wfi_store_reply_read(t->message + 4, n, reply_out))
        return lose(store, t, WF_REMOTE, "it is another program's port");
    return WF_OK;
}

static wf_status introduce(wf_store *store, tcp_store *t, const char *token, int64_t deadline_ms) {
    uint8_t challenge[WFI_STORE_CHALLENGE], proof[WFI_STORE_PROOF];
    wfi_store_reply reply;
    if (!transfer(t->fd, challenge, sizeof challenge, false, deadline_ms))
        return fail_transfer(store, t);
    wfi_store_prove(token, challenge, proof);
    wfi_store_request hello = {
        .verb = WFI_STORE_HELLO, .value = proof, .n_value = (uint32_t)sizeof proof};
    WF_TRY(request(store, t, &hello, deadline_ms, &reply));
    if (reply.result == WFI_STORE_DONE) return WF_OK;
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store %.200s refused rank %d's token; WEFT_TOKEN has to be the same in all "
                    "ranks of the job%s",
                    store->url, store->rank, *token ? "" : ", and is not set here");
}

/* Tries to connect once; -1 on failure. */
static int try_connect(const address *where, int64_t left_ms) {
    struct timeval patience = {left_ms / 1000, left_ms % 1000 * 1000 + 1000};
    int fd = socket(where->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (const struct sockaddr *)&where->at, where->bytes) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Rank 0 closes unauthenticated connections when many others arrive, and all new ones while it has
 * no slot. The client then connects again. */
static wf_status visit(wf_store *store, const address *where, const char *token, tcp_store *t) {
    int64_t nap_us = 0, deadline_ms = wfi_now_ms() + store->timeout_ms;
    for (;;) {
        t->was_closed = false;
        t->fd = try_connect(where, wfi_max_i64(0, deadline_ms - wfi_now_ms()));
        if (t->fd >= 0) {
            wf_status status = introduce(store, t, token, deadline_ms);
            if (!t->was_closed) return status;
        }
        if (wfi_now_ms() >= deadline_ms)
            return wfi_fail(store->ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms for rank 0, but %s %.200s", store->rank,
                            (long long)store->timeout_ms,
                            t->was_closed ? "every connection was closed at once by the program at"
                                          : "it does not listen at",
                            store->url);
        wfi_store_nap(&nap_us);
    }
}

/* ---- both ---- */

static wf_status tcp_act(wf_store *store, const wfi_store_request *r, int64_t deadline_ms,
                         wfi_store_reply *reply_out) {
    tcp_store *t = store->state;
    if (!t->server) return request(store, t, r, deadline_ms, reply_out);
    wfi_store_server_act(t->server, r, reply_out, t->message);
    return WF_OK;
}

static void tcp_close(wf_store *store) {
    tcp_store *t = store->state;
    if (t->server) wfi_store_server_stop(t->server);
    if (t->fd >= 0) close(t->fd);
    wfi_free(store->ctx, t);
}

static wf_status tcp_open(wf_store *store, const wf_store_config *config) {
    const char *token = config->token ? config->token : wfi_env_text(WFI_WEFT_TOKEN);
    address where;
    WF_TRY(read_address(store, &where));
    tcp_store *t = wfi_alloc(store->ctx, 1, sizeof *t, "a store");
    if (!t) return WF_NO_MEMORY;
    t->fd = -1;
    store->state = t; /* the caller closes it, also on failure */
    return store->rank ? visit(store, &where, token, t) : host(store, &where, token, t);
}

const wfi_store_class wfi_store_tcp = {"tcp://", tcp_open, tcp_close, tcp_act};

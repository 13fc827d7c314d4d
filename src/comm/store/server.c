/* The table of a tcp store, on a thread of rank 0.
 *
 * The server trusts no connection. The first message has to prove knowledge of the token, and
 * messages have a bound. A client that sends half a message, or does not take its reply, is
 * disconnected after a while. A connection that breaks a rule is closed with a warning and without
 * other effects. Unauthenticated connections have few slots of their own and never take those of
 * authenticated ones: a new one replaces the oldest.
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "comm/store/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_KNOWN     256
#define MAX_STRANGERS 64
#define MAX_CLIENTS   (MAX_KNOWN + MAX_STRANGERS)
#define STRANGER_SIZE (4 + WFI_STORE_HEAD + WFI_STORE_PROOF) /* room for a HELLO and its reply */
#define CLIENT_SIZE   (4 + WFI_STORE_MAX_MESSAGE)

typedef struct client {
    int fd;
    uint64_t number; /* in order of arrival */
    bool is_known;
    uint8_t challenge[WFI_STORE_CHALLENGE];
    uint8_t *in, *out; /* STRANGER_SIZE, CLIENT_SIZE once it is known */
    size_t n_in, n_out, n_sent;
    int64_t since_ms; /* start of an overdue message; 0: none is due */
    char name[64];    /* for the log */
} client;

struct wfi_store_server {
    wf_context *ctx;
    int listener, wake;
    char *token;
    int64_t patience_ms;
    pthread_t thread;
    pthread_mutex_t lock; /* of the table */
    wfi_store_table table;
    client clients[MAX_CLIENTS];
    int n_clients, n_known;
    uint64_t n_ever;
};

/* ---- one message ---- */

size_t wfi_store_converse(wfi_store_table *table, const char *token,
                          const uint8_t challenge[WFI_STORE_CHALLENGE], bool *is_known,
                          const uint8_t *bytes, size_t n, uint8_t *reply_bytes,
                          const char **why_out) {
    wfi_store_request r;
    wfi_store_reply reply = {.result = WFI_STORE_DONE};
    if (!wfi_store_request_read(bytes, n, &r) || (r.verb == WFI_STORE_HELLO) == *is_known) {
        *why_out = "it speaks another protocol";
        return 0;
    }
    if (r.verb == WFI_STORE_HELLO) {
        uint8_t proof[WFI_STORE_PROOF];
        wfi_store_prove(token, challenge, proof);
        *is_known = r.n_value == sizeof proof && !sodium_memcmp(r.value, proof, sizeof proof);
        if (!*is_known) reply.result = WFI_STORE_UNKNOWN;
    } else {
        wfi_store_table_act(table, &r, &reply);
    }
    return wfi_store_reply_write(&reply, reply_bytes);
}

void wfi_store_server_act(wfi_store_server *s, const wfi_store_request *request,
                          wfi_store_reply *reply_out, uint8_t *value_out) {
    pthread_mutex_lock(&s->lock);
    wfi_store_table_act(&s->table, request, reply_out);
    if (reply_out->n_value) memcpy(value_out, reply_out->value, reply_out->n_value);
    reply_out->value = value_out;
    pthread_mutex_unlock(&s->lock);
}

/* ---- a connection ---- */

static void release(wfi_store_server *s, client *g) {
    close(g->fd);
    wfi_free(s->ctx, g->in);
    wfi_free(s->ctx, g->out);
}

static void dismiss(wfi_store_server *s, client *g, const char *why) {
    if (why)
        wfi_log(s->ctx, WF_LOG_WARN, "store", "the connection from %s is closed: %s", g->name, why);
    release(s, g);
    s->n_known -= g->is_known;
    *g = s->clients[--s->n_clients];
}

static bool make_room(wfi_store_server *s, client *g, size_t bytes) {
    uint8_t *in = wfi_alloc(s->ctx, bytes, 1, "a connection"),
            *out = wfi_alloc(s->ctx, bytes, 1, "a connection");
    if (in && g->n_in) memcpy(in, g->in, g->n_in);
    if (out && g->n_out) memcpy(out, g->out, g->n_out);
    wfi_free(s->ctx, g->in);
    wfi_free(s->ctx, g->out);
    g->in = in;
    g->out = out;
    return in && out;
}

/* The challenge is the first message on each connection. */
static void welcome(wfi_store_server *s, int fd, const struct sockaddr_storage *peer) {
    client *g = &s->clients[s->n_clients];
    char address[INET6_ADDRSTRLEN] = "?";
    bool is_v6 = peer->ss_family == AF_INET6;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)peer;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)peer;
    inet_ntop(peer->ss_family, is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, address,
              sizeof address);
    *g = (client){.fd = fd, .number = s->n_ever++, .since_ms = wfi_now_ms()};
    snprintf(g->name, sizeof g->name, "%s port %d", address,
             ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
    s->n_clients++;
    if (!make_room(s, g, STRANGER_SIZE)) {
        dismiss(s, g, "no memory left");
        return;
    }
    randombytes_buf(g->challenge, sizeof g->challenge);
    memcpy(g->out, g->challenge, sizeof g->challenge);
    g->n_out = sizeof g->challenge;
}

static client *oldest_stranger(wfi_store_server *s) {
    client *oldest = NULL;
    for (client *g = s->clients; g < s->clients + s->n_clients; g++)
        if (!g->is_known && (!oldest || g->number < oldest->number)) oldest = g;
    return oldest;
}

static void accept_client(wfi_store_server *s) {
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    int fd = accept4(s->listener, (struct sockaddr *)&peer, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    bool has_no_room =
        fd >= 0 ? s->n_clients - s->n_known >= MAX_STRANGERS : errno == EMFILE || errno == ENFILE;
    client *oldest = has_no_room ? oldest_stranger(s) : NULL;
    if (oldest) dismiss(s, oldest, "others need its slot, and it has not identified itself");
    if (fd >= 0) welcome(s, fd, &peer);
}

/* Executes the received message, if it is complete. */
static const char *act(wfi_store_server *s, client *g) {
    const char *why = NULL;
    bool was_known = g->is_known;
    size_t most = (g->is_known ? CLIENT_SIZE : STRANGER_SIZE) - 4;
    if (g->n_in < 4 || g->n_out) return NULL;
    size_t n = wfi_get_number(g->in, 4);
    if (n < WFI_STORE_HEAD || n > most) return "it speaks another protocol";
    if (g->n_in < 4 + n) return NULL;
    pthread_mutex_lock(&s->lock);
    size_t n_reply = wfi_store_converse(&s->table, s->token, g->challenge, &g->is_known, g->in + 4,
                                        n, g->out + 4, &why);
    pthread_mutex_unlock(&s->lock);
    if (!n_reply) return why;
    if (!was_known && g->is_known && s->n_known == MAX_KNOWN) {
        g->is_known = false;
        return "there are too many already";
    }
    s->n_known += !was_known && g->is_known;
    if (g->is_known) g->since_ms = 0; /* the deadline restarts */
    wfi_put_number(g->out, 4, (uint32_t)n_reply);
    g->n_out = 4 + n_reply;
    g->n_in -= 4 + n;
    memmove(g->in, g->in + 4 + n, g->n_in);
    if (!was_known && g->is_known && !make_room(s, g, CLIENT_SIZE)) return "no memory left";
    return NULL;
}

/* Returns the reason to close the connection ("": closed by its peer), or NULL. */
static const char *receive(wfi_store_server *s, client *g) {
    size_t room = (g->is_known ? CLIENT_SIZE : STRANGER_SIZE) - g->n_in;
    ssize_t n = recv(g->fd, g->in + g->n_in, room, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    if (n == 0) return g->n_in || !g->is_known ? "it ended within a message" : "";
    g->n_in += (size_t)n;
    return act(s, g);
}

static const char *deliver(wfi_store_server *s, client *g) {
    ssize_t n = send(g->fd, g->out + g->n_sent, g->n_out - g->n_sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
    g->n_sent += (size_t)n;
    if (g->n_sent < g->n_out) return NULL;
    bool was_greeting = g->n_out == WFI_STORE_CHALLENGE;
    g->n_sent = g->n_out = 0;
    if (was_greeting) return NULL;
    if (!g->is_known) return "it does not know the token";
    return act(s, g);
}

static void look_at_time(client *g, int64_t now_ms) {
    bool owes = !g->is_known || g->n_in || g->n_out;
    if (!owes)
        g->since_ms = 0;
    else if (!g->since_ms)
        g->since_ms = now_ms;
}

static void serve_client(wfi_store_server *s, client *g, short events) {
    const char *why = NULL;
    int64_t now_ms = wfi_now_ms();
    if (events && g->n_out)
        why = deliver(s, g);
    else if (events)
        why = receive(s, g);
    if (!why) look_at_time(g, now_ms);
    if (!why && g->since_ms && now_ms - g->since_ms > s->patience_ms)
        why = g->n_out ? "it does not take its reply" : "it stopped within a message";
    if (why) dismiss(s, g, *why ? why : NULL);
}

/* ---- the thread ---- */

static void *serve(void *self) {
    wfi_store_server *s = self;
    struct pollfd fds[2 + MAX_CLIENTS];
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals belong to the program */
    for (;;) {
        int n = s->n_clients;
        fds[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < n; i++)
            fds[2 + i] = (struct pollfd){.fd = s->clients[i].fd,
                                         .events = s->clients[i].n_out ? POLLOUT : POLLIN};
        int n_ready = poll(fds, (nfds_t)(2 + n), n ? (int)s->patience_ms / 4 + 1 : -1);
        if (fds[0].revents) return NULL;
        /* Backwards, because a closed connection is replaced by the last one. */
        for (int i = n - 1; i >= 0; i--)
            serve_client(s, &s->clients[i], n_ready > 0 ? fds[2 + i].revents : 0);
        if (n_ready > 0 && fds[1].revents) accept_client(s);
    }
}

wf_status wfi_store_server_start(wf_context *ctx, int listener, const char *token,
                                 int64_t patience_ms, wfi_store_server **server_out) {
    wfi_store_server *s = wfi_alloc(ctx, 1, sizeof *s, "a store's server");
    char *copy = s ? wfi_strdup(ctx, token) : NULL;
    int wake = copy ? eventfd(0, EFD_CLOEXEC) : -1;
    if (wake >= 0) {
        *s = (wfi_store_server){.ctx = ctx,
                                .listener = listener,
                                .wake = wake,
                                .token = copy,
                                .patience_ms = patience_ms};
        pthread_mutex_init(&s->lock, NULL);
        wfi_store_table_init(&s->table, ctx);
        if (pthread_create(&s->thread, NULL, serve, s) == 0) {
            *server_out = s;
            return WF_OK;
        }
        pthread_mutex_destroy(&s->lock);
        close(wake);
    }
    wf_status status =
        copy ? wfi_fail(ctx, WF_DEVICE, "a store's server cannot start: %s", strerror(errno))
             : WF_NO_MEMORY;
    close(listener);
    wfi_free(ctx, copy);
    wfi_free(ctx, s);
    return status;
}

void wfi_store_server_stop(wfi_store_server *s) {
    uint64_t one = 1;
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
    pthread_join(s->thread, NULL);
    for (int i = 0; i < s->n_clients; i++) release(s, &s->clients[i]);
    close(s->listener);
    close(s->wake);
    pthread_mutex_destroy(&s->lock);
    wfi_store_table_release(&s->table);
    sodium_memzero(s->token, strlen(s->token));
    wfi_free(s->ctx, s->token);
    wfi_free(s->ctx, s);
}

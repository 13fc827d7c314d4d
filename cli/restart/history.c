/* Rank 0's part of the history of a run over its restarts. A kill may come between any two stores,
 * so a mark is complete before it counts. */
#include "common/clock.h"
#include "restart/restart.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x77656674686973)

int64_t restart_number(void) {
    const char *text = wf_info_variable_value(RESTART_ENV);
    char *end;
    long long number = text ? strtoll(text, &end, 10) : 0;
    return text && *text && !*end && number > 0 ? number : 0;
}

/* The descriptor may be closed, or be of another file. */
static history *map(int fd) {
    struct stat about;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_size != sizeof(history))
        return NULL;
    history *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h == MAP_FAILED) return NULL;
    if (h->magic == MAGIC) return h;
    munmap(h, sizeof *h);
    return NULL;
}

int restart_descriptor(const char *variable) {
    const char *text = getenv(variable);
    char *end;
    long fd = text ? strtol(text, &end, 10) : -1;
    return !text || end == text || *end || fd < 3 || fd > 1 << 20 ? -1 : (int)fd;
}

history *history_find(void) {
    int fd = restart_descriptor(HISTORY_ENV);
    history *h = map(fd);
    if (h) fcntl(fd, F_SETFD, FD_CLOEXEC); /* programs that a rank starts need none */
    return h;
}

history *history_create(int *fd_out) {
    const history fresh = {.magic = MAGIC, .first_step = -1, .most_done = -1};
    int low = memfd_create("weft-history", MFD_CLOEXEC);
    *fd_out = low < 0 ? -1 : fcntl(low, F_DUPFD, 3); /* ranks inherit this one */
    if (low >= 0) close(low);
    bool is_written = *fd_out >= 0 && write(*fd_out, &fresh, sizeof fresh) == sizeof fresh;
    history *h = is_written ? map(*fd_out) : NULL;
    if (!h && *fd_out >= 0) close(*fd_out);
    return h;
}

static double useful_s(const history *h) {
    return h->base_s + now_seconds() - h->attempt_s;
}

/* The useful seconds of the checkpoint from which this attempt continues. */
static double find_mark(const history *h, int64_t step) {
    for (int64_t k = h->n_marks; k-- > 0 && k >= h->n_marks - N_MARKS;)
        if (h->marks[k % N_MARKS].step == step) return h->marks[k % N_MARKS].useful_s;
    for (int k = 0; k < 2; k++)
        if (h->snapshots[k].step == step) return h->snapshots[k].useful_s;
    return 0;
}

void history_begin(history *h, int64_t n_done) {
    if (!h) return;
    double now = now_seconds();
    if (h->first_step < 0) {
        h->begun_s = now;
        h->first_step = n_done;
    } else {
        h->base_s = find_mark(h, n_done);
        h->n_repeated += h->n_done > n_done ? h->n_done - n_done : 0;
    }
    h->attempt_s = now;
    history_step(h, n_done);
}

void history_step(history *h, int64_t n_done) {
    if (!h) return;
    h->n_done = n_done;
    if (n_done > h->most_done) h->most_done = n_done;
}

void history_mark(history *h, int64_t n_done) {
    if (!h) return;
    bool is_again = h->n_marks && h->marks[(h->n_marks - 1) % N_MARKS].step == n_done;
    int64_t at = is_again ? h->n_marks - 1 : h->n_marks;
    h->marks[at % N_MARKS] = (restart_mark){n_done, useful_s(h)};
    __atomic_store_n(&h->n_marks, at + 1, __ATOMIC_RELEASE);
}

void history_mark_snapshot(history *h, int64_t n_done) {
    if (!h) return;
    restart_mark *last = h->snapshots;
    if (last[0].step != n_done) last[1] = last[0];
    last[0] = (restart_mark){n_done, useful_s(h)};
}

void history_follow(const history *h) {
    char text[32];
    if (!h || h->n_restarts <= restart_number()) return;
    snprintf(text, sizeof text, "%lld", (long long)h->n_restarts);
    setenv(RESTART_ENV, text, 1);
}

void history_report(history *h) {
    if (h) h->is_reported = 1;
}

void history_release(history *h) {
    if (h) munmap(h, sizeof *h);
}

/* FNV-1a */
static uint64_t hash_text(uint64_t hash, const char *text) {
    do hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    while (*text++);
    return hash;
}

bool history_is_same_run(history *h, const char *recipe, const char *data_hash) {
    uint64_t identity = hash_text(hash_text(0xcbf29ce484222325, recipe), data_hash) | 1;
    if (h && !h->identity) h->identity = identity;
    return !h || h->identity == identity;
}

void history_give_up(history *h) {
    if (h) h->is_final = 1;
}

void history_retry(history *h) {
    if (h) h->n_retries++;
}

void history_seconds(const history *h, double *lost_s_out, double *all_s_out) {
    *lost_s_out = *all_s_out = 0;
    if (!h || h->first_step < 0) return;
    *all_s_out = now_seconds() - h->begun_s;
    *lost_s_out = *all_s_out - useful_s(h);
}

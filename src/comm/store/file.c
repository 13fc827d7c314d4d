/* A store in a file: a log of set and deleted keys, which each process replays into its own table.
 *
 * Locks belong to the open file, not to the process. So threads exclude each other as well, and the
 * kernel releases the locks of a process that dies. One byte is locked while the log is read or
 * written, and one byte per rank while the rank has the store open. A log that no process has open
 * is left over from a killed run. Such a log is refused, as its keys would be mistaken for those of
 * this job. A file of another user, or one that others may write, is refused as well: a writer of
 * the log can join the job.
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "comm/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_BYTE       ((off_t)1 << 40) /* far beyond the end of any log */
#define RANK_BYTES     ((off_t)1 << 41)
#define MAX_RANKS      65536
#define MAX_FILE_BYTES (64 << 20)
#define MAX_TRIES      100
#define MAGIC          "weft-store 1\n"

typedef struct file_store {
    int fd;
    const char *path; /* in the store's url */
    wfi_store_table table;
    off_t n_read; /* bytes of the file that the table includes */
    uint8_t record[4 + WFI_STORE_MAX_MESSAGE];
} file_store;

static wf_status fail_io(const wf_store *store, const char *what) {
    return wfi_fail(store->ctx, WF_IO, "store %.200s: %s: %s", store->url, what, strerror(errno));
}

/* ---- locks ---- */

static bool set_lock(int fd, short type, off_t start, off_t n) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = n};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Whether another process has a lock there. */
static bool is_locked(int fd, off_t start, off_t n) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = n};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static wf_status lock_log(const wf_store *store, int fd, int64_t deadline_ms) {
    for (int64_t nap_us = 0; !set_lock(fd, F_WRLCK, LOG_BYTE, 1);) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return fail_io(store, "the file cannot be locked");
        if (wfi_now_ms() >= deadline_ms)
            return wfi_fail(store->ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms for %.200s, which another process keeps locked",
                            store->rank, (long long)store->timeout_ms, store->url);
        wfi_store_nap(&nap_us);
    }
    return WF_OK;
}

static void unlock_log(int fd) {
    set_lock(fd, F_UNLCK, LOG_BYTE, 1);
}

/* ---- the log ---- */

bool wfi_store_replay(wfi_store_table *table, const uint8_t *bytes, size_t n, size_t *n_read_out) {
    *n_read_out = 0;
    while (n - *n_read_out >= 4) {
        wfi_store_request r;
        wfi_store_reply reply;
        size_t n_message = wfi_get_number(bytes + *n_read_out, 4);
        if (n_message < WFI_STORE_HEAD || n_message > WFI_STORE_MAX_MESSAGE) return false;
        if (n - *n_read_out - 4 < n_message) return true; /* its writer was killed */
        if (!wfi_store_request_read(bytes + *n_read_out + 4, n_message, &r) ||
            (r.verb != WFI_STORE_SET && r.verb != WFI_STORE_DELETE))
            return false;
        wfi_store_table_act(table, &r, &reply);
        if (reply.result != WFI_STORE_DONE) return false;
        *n_read_out += 4 + n_message;
    }
    return true;
}

static wf_status corrupt(const wf_store *store) {
    return wfi_fail(store->ctx, WF_CORRUPT,
                    "store %.200s is damaged, or something else writes to the file; remove it",
                    store->url);
}

/* Replays the records that other ranks have appended. Called with the log locked. */
static wf_status catch_up(wf_store *store, file_store *f) {
    for (;;) {
        size_t n_used;
        ssize_t n = pread(f->fd, f->record, sizeof f->record, f->n_read);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_io(store, "the file cannot be read");
        if (!wfi_store_replay(&f->table, f->record, (size_t)n, &n_used)) return corrupt(store);
        f->n_read += (off_t)n_used;
        if (n_used) continue;
        if (n > 0 && ftruncate(f->fd, f->n_read)) /* half a record of a killed writer */
            return fail_io(store, "the file cannot be cut");
        return WF_OK;
    }
}

static bool write_all(int fd, const uint8_t *bytes, size_t n, off_t at) {
    for (size_t n_done = 0; n_done < n;) {
        ssize_t now = pwrite(fd, bytes + n_done, n - n_done, at + (off_t)n_done);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) return false;
        n_done += (size_t)now;
    }
    return true;
}

/* Appends the result of the request: a key with a value, or without one. */
static wf_status append(wf_store *store, file_store *f, const wfi_store_request *r) {
    wfi_store_request log = {.verb = r->verb == WFI_STORE_DELETE ? r->verb : WFI_STORE_SET,
                             .key = r->key,
                             .n_key = r->n_key,
                             .n_value = r->n_value,
                             .value = r->value};
    if (r->verb == WFI_STORE_ADD) {
        log.value = (const uint8_t *)f->table.number;
        log.n_value = (uint32_t)strlen(f->table.number);
    }
    size_t n = wfi_store_request_write(&log, f->record + 4);
    wfi_put_number(f->record, 4, (uint32_t)n);
    wf_status status = WF_OK;
    if (f->n_read + (off_t)(4 + n) > MAX_FILE_BYTES)
        status = wfi_fail(store->ctx, WF_INVALID_ARG,
                          "store %.200s is full: its log has reached %d bytes; for so many changes "
                          "take a tcp store",
                          store->url, MAX_FILE_BYTES);
    else if (!write_all(f->fd, f->record, 4 + n, f->n_read))
        status = fail_io(store, "the file cannot be written");
    if (status == WF_OK) {
        f->n_read += (off_t)(4 + n);
        return WF_OK;
    }
    /* The change was not logged, so it is undone: the table is replayed from the file. */
    if (ftruncate(f->fd, f->n_read)) (void)fail_io(store, "the file cannot be cut");
    wfi_store_table_release(&f->table);
    f->n_read = WFI_STORE_FILE_HEAD;
    return status;
}

static wf_status file_act(wf_store *store, const wfi_store_request *r, int64_t deadline_ms,
                          wfi_store_reply *reply_out) {
    file_store *f = store->state;
    WF_TRY(lock_log(store, f->fd, deadline_ms));
    wf_status status = catch_up(store, f);
    if (status == WF_OK) {
        wfi_store_table_act(&f->table, r, reply_out);
        bool changes = r->verb != WFI_STORE_GET && r->verb != WFI_STORE_COUNT;
        if (changes && reply_out->result == WFI_STORE_DONE) status = append(store, f, r);
    }
    unlock_log(f->fd);
    return status;
}

/* ---- opening and closing ---- */

static wf_status write_head(wf_store *store, int fd) {
    char head[WFI_STORE_FILE_HEAD + 64];
    int n =
        snprintf(head, sizeof head, MAGIC "%d ranks, process %d", store->n_ranks, (int)getpid());
    memset(head + n, ' ', (size_t)(WFI_STORE_FILE_HEAD - n));
    head[WFI_STORE_FILE_HEAD - 1] = '\n';
    if (!write_all(fd, (const uint8_t *)head, WFI_STORE_FILE_HEAD, 0))
        return fail_io(store, "the file cannot be written");
    return WF_OK;
}

static wf_status check_head(wf_store *store, int fd) {
    char head[WFI_STORE_FILE_HEAD + 1] = "";
    int n_ranks, pid;
    ssize_t n = pread(fd, head, WFI_STORE_FILE_HEAD, 0);
    if (n < 0) return fail_io(store, "the file cannot be read");
    if (n < WFI_STORE_FILE_HEAD || strncmp(head, MAGIC, strlen(MAGIC)) ||
        sscanf(head + strlen(MAGIC), "%5d ranks, process %10d", &n_ranks, &pid) != 2)
        return wfi_fail(store->ctx, WF_CORRUPT,
                        "store %.200s: the file is not a weft store, and was not changed",
                        store->url);
    if (!is_locked(fd, RANK_BYTES, MAX_RANKS))
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store %.200s was left by an earlier run (process %d), all processes of "
                        "which have ended without closing it; remove the file",
                        store->url, pid);
    if (n_ranks != store->n_ranks)
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store %.200s is in use by a job of %d ranks (process %d); rank %d is one "
                        "of %d",
                        store->url, n_ranks, pid, store->rank, store->n_ranks);
    return WF_OK;
}

/* Checks the file's owner. The owner could read and rewrite the file while ranks join. So could
 * others if all may write it or if it has a second name. */
static wf_status check_owner(const wf_store *store, const struct stat *about) {
    const char *why = NULL;
    if (!S_ISREG(about->st_mode))
        why = "it is not a regular file";
    else if (about->st_uid != geteuid())
        why = "it belongs to another user";
    else if (about->st_mode & (S_IWGRP | S_IWOTH))
        why = "other users may write to it";
    else if (about->st_nlink > 1)
        why = "it has another name as well (a hard link)";
    if (!why) return WF_OK;
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store %.200s is refused, and the file was not changed: %s; name a file that "
                    "is not there yet, in a folder of your own",
                    store->url, why);
}

/* Called with the log locked. */
static wf_status enter(wf_store *store, int fd, const struct stat *about) {
    if (!about->st_size && fchmod(fd, 0600)) return fail_io(store, "the file's mode");
    WF_TRY(about->st_size ? check_head(store, fd) : write_head(store, fd));
    if (set_lock(fd, F_WRLCK, RANK_BYTES + store->rank, 1)) return WF_OK;
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store %.200s: another process is rank %d there; do two jobs use this file?",
                    store->url, store->rank);
}

/* O_EXCL ensures that this process creates a new file; O_NOFOLLOW, that an existing one is not
 * reached through a link. */
static wf_status open_own(const wf_store *store, const char *path, int *fd_out) {
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    for (int i = 0; i < MAX_TRIES; i++) {
        *fd_out = open(path, flags | O_CREAT | O_EXCL, 0600);
        if (*fd_out < 0 && errno == EEXIST) *fd_out = open(path, flags);
        if (*fd_out >= 0) return WF_OK;
        if (errno == ELOOP)
            return wfi_fail(store->ctx, WF_INVALID_ARG,
                            "store %.200s is refused: it is a link, which is not followed",
                            store->url);
        if (errno != ENOENT) break; /* otherwise an earlier job has just removed it */
    }
    return fail_io(store, "the file cannot be opened");
}

static wf_status open_file(wf_store *store, const char *path, int *fd_out) {
    int64_t nap_us = 0, deadline_ms = wfi_now_ms() + store->timeout_ms;
    for (;;) {
        struct stat about = {0};
        int fd;
        WF_TRY(open_own(store, path, &fd));
        wf_status status = fstat(fd, &about) ? fail_io(store, "fstat") : check_owner(store, &about);
        if (status == WF_OK) status = lock_log(store, fd, deadline_ms);
        if (status == WF_OK && fstat(fd, &about)) status = fail_io(store, "fstat");
        bool is_removed = status == WF_OK && !about.st_nlink; /* by an earlier job */
        if (status == WF_OK && !is_removed) status = enter(store, fd, &about);
        if (status == WF_OK && !is_removed) {
            unlock_log(fd);
            *fd_out = fd;
            return WF_OK;
        }
        close(fd);
        if (status != WF_OK) return status;
        wfi_store_nap(&nap_us);
    }
}

static wf_status file_open(wf_store *store, const wf_store_config *config) {
    const char *path = store->url + strlen("file://");
    (void)config;
    if (*path != '/' || !path[1])
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store '%.200s' does not name a file on this machine; write file:///path",
                        store->url);
    file_store *f = wfi_alloc(store->ctx, 1, sizeof *f, "a store");
    if (!f) return WF_NO_MEMORY;
    wf_status status = open_file(store, path, &f->fd);
    if (status != WF_OK) {
        wfi_free(store->ctx, f);
        return status;
    }
    f->path = path;
    f->n_read = WFI_STORE_FILE_HEAD;
    wfi_store_table_init(&f->table, store->ctx);
    store->state = f;
    return WF_OK;
}

/* The last rank that leaves removes the file, if it still has this name. */
static void file_close(wf_store *store) {
    file_store *f = store->state;
    struct stat ours, named;
    if (lock_log(store, f->fd, wfi_now_ms() + store->timeout_ms) == WF_OK &&
        !is_locked(f->fd, RANK_BYTES, MAX_RANKS) && fstat(f->fd, &ours) == 0 &&
        lstat(f->path, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
        unlink(f->path);
    close(f->fd);
    wfi_store_table_release(&f->table);
    wfi_free(store->ctx, f);
}

const wfi_store_class wfi_store_file = {"file://", file_open, file_close, file_act};

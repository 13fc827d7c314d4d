/* Faults from outside of weft, for tests/fault_table.sh: a library for LD_PRELOAD. It stands
 * between a process and the C library and lets one call fail, or ends or stops the process there.
 *
 *   FAULT=ACTION@POINT:RANK:N:ATTEMPT   RANK -1 is the launcher; ATTEMPT -1 is each one
 *   FAULT_DIR                           the folder of the run
 *
 * Points: `start`, the Nth allocation; `save`, the Nth call that changes the folder; `rename`, the
 * Nth time that a checkpoint gets its name; `read`, the Nth call that reads in the folder;
 * `signal`, SIGUSR1; `connect`, each of the first N connections; `reserve`, the Nth fallocate;
 * `copy`, the Nth piece of a snapshot.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FIRST_IMAGE                                                                                \
    ((off_t)1 << 41) /* its place in the memory of snapshots (cli/restart/snapshot.c) */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static char action[16], point[16], folder[PATH_MAX];
static bool is_target, is_out_of_memory, is_full, tears, flips, dies_at_rename;
static atomic_long n_left;
static char *images[2]; /* memory of snapshots, as far as it is mapped */
static size_t image_bytes;

/* ---- actions ---- */

static int remove_at(const char *name) {
    char path[PATH_MAX + 40];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void nap(void) {
    struct timespec time = {0, 300000000};
    nanosleep(&time, NULL);
}

/* A file beside the folder shows that the fault came. */
static void record(void) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s.hit", folder);
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0666));
}

/* Memory that is lost reads as zeros. */
static void lose_images(void) {
    for (int k = 0; k < 2; k++)
        if (images[k]) madvise(images[k], image_bytes, MADV_REMOVE);
}

/* A fault of a file comes with the next write, or with the crash that makes it matter. */
static void act(void) {
    int code = errno;
    record();
    if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(action, "stop")) kill(getpid(), SIGSTOP);
    if (!strcmp(action, "slow")) nap();
    is_out_of_memory |= !strcmp(action, "memory");
    is_full |= !strcmp(action, "full");
    tears |= !strcmp(action, "torn");
    flips |= !strcmp(action, "flip");
    if (!strcmp(action, "lost")) {
        remove_at("state.safetensors");
        remove_at("state.safetensors.index.json");
        if (!strcmp(point, "copy")) lose_images();
        kill(getpid(), SIGKILL);
    }
    errno = code;
}

static void reach(const char *here) {
    if (is_target && !strcmp(point, here) && atomic_fetch_sub(&n_left, 1) == 1) act();
}

static void on_signal(int number) {
    if (is_target && !strcmp(point, "signal")) act();
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAULT"), *in = getenv("FAULT_DIR"), *own = getenv("RANK"),
               *restart = getenv("WEFT_RESTART");
    int rank, attempt;
    long n;
    if (!text || !in ||
        sscanf(text, "%15[a-z]@%15[a-z]:%d:%ld:%d", action, point, &rank, &n, &attempt) != 5)
        return;
    snprintf(folder, sizeof folder, "%s", in);
    n_left = n;
    is_target =
        rank == (own ? atoi(own) : -1) && (attempt < 0 || attempt == (restart ? atoi(restart) : 0));
    if (is_target && !strcmp(point, "signal")) signal(SIGUSR1, on_signal);
}

/* ---- memory ---- */

static bool is_refused(void) {
    if (!is_target) return false;
    reach("start");
    if (is_out_of_memory) errno = ENOMEM;
    return is_out_of_memory;
}

void *malloc(size_t bytes) {
    return is_refused() ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    return is_refused() ? NULL : __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    return is_refused() ? NULL : __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t align, size_t bytes) {
    return is_refused() ? NULL : __libc_memalign(align, bytes);
}
int posix_memalign(void **out, size_t align, size_t bytes) {
    void *data = is_refused() ? NULL : __libc_memalign(align, bytes);
    if (!data) return ENOMEM;
    *out = data;
    return 0;
}
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_refused()) return MAP_FAILED;
    void *data = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    bool is_image = is_target && fd >= 0 && offset >= FIRST_IMAGE && data != MAP_FAILED;
    if (is_image) images[offset > FIRST_IMAGE] = data, image_bytes = bytes;
    return data;
}
int fallocate(int fd, int mode, off_t at, off_t bytes) {
    reach("reserve");
    if (is_full) errno = ENOSPC;
    return is_full ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}

/* ---- snapshots ---- */

static bool is_in_image(const char *at) {
    for (int k = 0; k < 2; k++)
        if (images[k] && at >= images[k] && at < images[k] + image_bytes) return true;
    return false;
}

/* The bit flips in both images, and the death makes it matter. */
static void flip_images(void) {
    for (int k = 0; k < 2; k++) images[k][image_bytes / 2] ^= 4;
    kill(getpid(), SIGKILL);
}

void *memcpy(void *to, const void *from, size_t n) {
    if (!is_in_image(to)) return memmove(to, from, n);
    reach("copy");
    if (flips) flip_images();
    memmove(to, from, tears ? n / 2 : n);
    if (tears) kill(getpid(), SIGKILL);
    return to;
}

/* ---- files ---- */

static bool is_below(const char *path) {
    size_t n = strlen(folder);
    return is_target && n && !strncmp(path, folder, n);
}

static bool is_ours(int fd) {
    char link[40], path[PATH_MAX];
    if (!is_target) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return is_below(path);
}

/* A change of the folder. Returns whether the disk is full. */
static bool is_change_refused(bool is_in_folder) {
    if (!is_in_folder) return false;
    reach("save");
    if (is_full) errno = ENOSPC;
    return is_full;
}

static ssize_t put(int fd, const void *from, size_t n, off_t at, bool has_place) {
    bool is_in_folder = is_ours(fd);
    char *copy = NULL;
    ssize_t done;
    if (is_change_refused(is_in_folder)) return -1;
    if (is_in_folder && tears) n = n / 2;
    if (is_in_folder && flips && n && (copy = __libc_malloc(n))) {
        memcpy(copy, from, n);
        copy[n / 2] ^= 4;
        flips = false, dies_at_rename = true;
    }
    done = has_place ? syscall(SYS_pwrite64, fd, copy ? copy : from, n, at)
                     : syscall(SYS_write, fd, copy ? copy : from, n);
    free(copy);
    if (is_in_folder && tears) kill(getpid(), SIGKILL);
    return done;
}

ssize_t write(int fd, const void *from, size_t n) {
    return put(fd, from, n, 0, false);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    return put(fd, from, n, at, true);
}
ssize_t pwrite64(int fd, const void *from, size_t n, off_t at) {
    return put(fd, from, n, at, true);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (is_ours(fd)) reach("read");
    return syscall(SYS_pread64, fd, to, n, at);
}
ssize_t pread64(int fd, void *to, size_t n, off_t at) {
    return pread(fd, to, n, at);
}
int fsync(int fd) {
    if (is_change_refused(is_ours(fd))) return -1;
    return (int)syscall(SYS_fsync, fd);
}

/* A name that is not absolute is in a folder that is open. */
static bool is_named(int folder_fd, const char *path) {
    return is_target &&
           (*path == '/' ? is_below(path) : folder_fd != AT_FDCWD && is_ours(folder_fd));
}

static int open_at(int folder_fd, const char *path, int flags, mode_t mode) {
    bool is_in_folder = is_named(folder_fd, path);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT)) {
        if (is_change_refused(is_in_folder)) return -1;
    } else if (is_in_folder) {
        reach("read");
    }
    return (int)syscall(SYS_openat, folder_fd, path, flags, mode);
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & O_CREAT ? va_arg(rest, mode_t) : 0;
}
#define OPEN(name, folder_fd, ...)                                                                 \
    int name(__VA_ARGS__, int flags, ...) {                                                        \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = mode_of(flags, rest);                                                        \
        va_end(rest);                                                                              \
        return open_at(folder_fd, path, flags, mode);                                              \
    }
OPEN(open, AT_FDCWD, const char *path)
OPEN(open64, AT_FDCWD, const char *path)
OPEN(openat, at, int at, const char *path)
OPEN(openat64, at, int at, const char *path)

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (is_change_refused(is_named(to_fd, to))) return -1;
    if (is_named(to_fd, to) && strstr(to, "state.safetensors")) reach("rename");
    int status = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
    if (dies_at_rename && is_named(to_fd, to)) kill(getpid(), SIGKILL);
    return status;
}
int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return renameat2(from_fd, from, to_fd, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    if (is_change_refused(is_named(to_fd, to))) return -1;
    return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    if (is_change_refused(is_named(AT_FDCWD, path))) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* ---- connections ---- */

int connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    if (is_target && !strcmp(point, "connect") && atomic_fetch_sub(&n_left, 1) > 0) {
        record();
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

/* The folder of a run, and its lock. */
#include "checkpoint/checkpoint.h"
#include "restart/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PATH_BYTES 3000

exit_status checkpoint_folder(const cli *c) {
    char path[PATH_BYTES];
    struct stat about;
    if (strlen(c->o.out) >= sizeof path) return complain(EXIT_USAGE, "--out: the path is too long");
    strcpy(path, c->o.out);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/') continue;
        char was = *at;
        *at = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return complain(EXIT_FAILED, "--out: %s cannot be made: %s", path, strerror(errno));
        *at = was;
        if (!was) break;
    }
    bool is_folder = !stat(path, &about) && S_ISDIR(about.st_mode);
    if (!is_folder || access(path, W_OK | X_OK))
        return complain(EXIT_FAILED, "--out: %s %s", path,
                        is_folder ? "cannot be written" : "is not a folder");
    return EXIT_DONE;
}

/* The process that holds the lock, as the kernel lists it; 0: it does not, for example because the
 * process is one of another container. */
static long find_holder(int fd) {
    struct stat about;
    FILE *locks = fopen("/proc/locks", "re");
    char line[256];
    long found = 0;
    if (locks && fstat(fd, &about) == 0)
        while (!found && fgets(line, sizeof line, locks)) {
            unsigned major_number, minor_number;
            unsigned long inode;
            long pid;
            if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%lu", &pid, &major_number, &minor_number,
                       &inode) == 4 &&
                inode == about.st_ino && major_number == major(about.st_dev) &&
                minor_number == minor(about.st_dev) && pid > 0)
                found = pid;
        }
    if (locks) fclose(locks);
    return found;
}

/* Returns a descriptor of the launcher's lock on the folder, or -1. */
static int find_inherited(int folder) {
    struct stat x, y;
    int fd = restart_descriptor(FOLDER_ENV);
    bool is_ours = !fstat(fd, &x) && !fstat(folder, &y) && x.st_dev == y.st_dev &&
                   x.st_ino == y.st_ino && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!is_ours) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* programs that a rank starts need none */
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* The lock is on the folder itself, so no file is left behind that could be mistaken for one. */
exit_status checkpoint_lock(const cli *c, int *lock_out) {
    *lock_out = -1;
    int fd = open(c->o.out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return EXIT_DONE; /* the code that writes there reports the error */
    *lock_out = find_inherited(fd);
    if (*lock_out < 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *lock_out = fd;
        return EXIT_DONE;
    }
    if (*lock_out >= 0) {
        close(fd);
        return EXIT_DONE;
    }
    char holder[60] = "";
    bool is_held = errno == EWOULDBLOCK;
    long pid = is_held ? find_holder(fd) : 0;
    if (pid) snprintf(holder, sizeof holder, " (process %ld)", pid);
    close(fd);
    if (!is_held) return EXIT_DONE;
    return complain(EXIT_USAGE,
                    "--out: another run%s is writing to %s; wait for its end, or choose another "
                    "folder",
                    holder, c->o.out);
}

void checkpoint_unlock(int lock) {
    if (lock >= 0) close(lock);
}

/* ---- the launcher ---- */

/* Returns the length of the part of the path that exists. */
static size_t count_existing(const char *path) {
    char part[PATH_BYTES];
    size_t n = (size_t)snprintf(part, sizeof part, "%s", path);
    for (n = n < sizeof part ? n : 0; n; part[--n] = 0)
        if ((!path[n] || path[n] == '/') && !access(part, F_OK)) return n;
    return 0;
}

/* Removes folders beyond that part, as far as they are empty. */
static void remove_empty(const char *path, size_t n_old) {
    char part[PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (size_t n = strlen(part); n > n_old; part[--n] = 0)
        if ((!path[n] || path[n] == '/') && rmdir(part) && errno != ENOENT) return;
}

exit_status checkpoint_hold(const cli *c, held_folder *held_out) {
    char text[32];
    *held_out = (held_folder){.lock = -1};
    unsetenv(FOLDER_ENV);
    if (!c->o.out || !(c->command & FOR_TRAIN)) return EXIT_DONE;
    held_out->n_old = count_existing(c->o.out);
    exit_status bad = checkpoint_folder(c);
    if (!bad) bad = checkpoint_lock(c, &held_out->lock);
    if (bad || held_out->lock < 0) return bad;
    fcntl(held_out->lock, F_SETFD, 0);
    snprintf(text, sizeof text, "%d", held_out->lock);
    setenv(FOLDER_ENV, text, 1);
    return EXIT_DONE;
}

void checkpoint_release(const cli *c, const held_folder *held) {
    if (held->lock < 0) return;
    checkpoint_remove_leftovers(c);
    remove_empty(c->o.out, held->n_old);
    close(held->lock);
}

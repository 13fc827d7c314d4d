/* The folder of a run, and whose it is. */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

exit_status checkpoint_folder(const cli *c) {
    char path[3000];
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

/* The lock is on the folder itself, so no file is left behind that could be mistaken for one. */
exit_status checkpoint_lock(const cli *c, int *lock_out) {
    *lock_out = -1;
    int fd = open(c->o.out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return EXIT_DONE; /* whoever makes it or writes there says what is wrong */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *lock_out = fd;
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

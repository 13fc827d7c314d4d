#include "bench/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRIES 1000 /* 10 s: programs that a killed process started end after it and may write */

/* A run that was killed may leave half a report under another name. */
static bool is_removed(const scratch *s) {
    rewinddir(s->listing);
    for (struct dirent *f; (f = readdir(s->listing));)
        (void)unlinkat(dirfd(s->listing), f->d_name, 0);
    return rmdir(s->folder) == 0 || errno == ENOENT;
}

/* After fork it allocates no memory: other threads may hold locks. The pipe ends with its writer.
 */
static _Noreturn void keep(const scratch *s, int fd) {
    const struct timespec nap = {0, 10000000};
    sigset_t all;
    char none;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid(); /* a kill of the process group must not end the keeper */
    for (int k = 0; k < 1024; k++)
        if (k != fd && k != dirfd(s->listing)) close(k);
    while (read(fd, &none, 1) < 0 && errno == EINTR) {
    }
    for (int k = 0; k < TRIES && !is_removed(s); k++) nanosleep(&nap, NULL);
    _exit(0);
}

static bool start_keeper(scratch *s) {
    int ends[2];
    if (!(s->listing = opendir(s->folder)) || pipe2(ends, O_CLOEXEC)) return false;
    s->fd = ends[1];
    s->keeper = fork();
    if (s->keeper == 0) keep(s, ends[0]);
    close(ends[0]);
    return s->keeper > 0;
}

exit_status scratch_open(scratch *s) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent || strlen(parent) > 150) parent = "/tmp";
    *s = (scratch){.fd = -1};
    snprintf(s->folder, sizeof s->folder, "%s/weft-bench-XXXXXX", parent);
    if (mkdtemp(s->folder) && start_keeper(s)) return EXIT_DONE;
    int error = errno;
    (void)rmdir(s->folder);
    if (s->listing) closedir(s->listing);
    if (s->fd >= 0) close(s->fd);
    return complain(EXIT_FAILED, "no folder for reports can be made in %s: %s", parent,
                    strerror(error));
}

void scratch_close(scratch *s) {
    (void)is_removed(s); /* the keeper may have been killed */
    close(s->fd);
    while (waitpid(s->keeper, NULL, 0) < 0 && errno == EINTR) {
    }
    closedir(s->listing);
}

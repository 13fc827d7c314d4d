#include "draw/gnuplot.h"
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define MOST_MS 30000
#define NAP_MS  10

static long limit_ms(void) {
    const char *text = wf_info_variable_value("WEFT_TIMEOUT_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    return ms > 0 && ms < MOST_MS ? ms : MOST_MS;
}

/* Its time is counted in naps, so that being suspended takes none of it. */
static int wait_for(pid_t child) {
    const struct timespec nap = {0, NAP_MS * 1000000L};
    int status = 0, killed = 0;
    for (long n_left = limit_ms() / NAP_MS + 1;;) {
        pid_t ended = waitpid(child, &status, killed ? 0 : WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) break;
        if (interrupt_status())
            killed = GNUPLOT_INTERRUPTED;
        else if (n_left-- == 0)
            killed = GNUPLOT_LATE;
        if (killed)
            kill(child, SIGKILL);
        else
            nanosleep(&nap, NULL);
    }
    if (killed) return killed;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* gnuplot in `dir`, from `script` to `out`; its exit status, or one of GNUPLOT_... */
static int run(const char *dir, int script, int out) {
    char program[] = "gnuplot";
    char *const argv[] = {program, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (posix_spawn_file_actions_init(&actions)) return GNUPLOT_MISSING;
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    posix_spawn_file_actions_adddup2(&actions, script, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return GNUPLOT_MISSING;
    return wait_for(child);
}

const char *gnuplot_meaning(int status) {
    return status == GNUPLOT_MISSING || status == 127 ? "gnuplot is not installed"
           : status == GNUPLOT_LATE                   ? "gnuplot did not end, and was killed"
           : status == GNUPLOT_INTERRUPTED            ? "gnuplot was interrupted"
                                                      : "gnuplot failed";
}

/* How many bytes were drawn; -1: they cannot be read. */
static ssize_t copy_drawn(int fd, FILE *out) {
    char piece[16384];
    ssize_t n, n_all = 0;
    while ((n = pread(fd, piece, sizeof piece, n_all)) > 0) {
        fwrite(piece, 1, (size_t)n, out);
        n_all += n;
    }
    return n < 0 ? -1 : n_all;
}

/* A file in memory that holds the text, at its begin; -1: there is no memory left. */
static int file_of(const char *text) {
    int fd = memfd_create("weft-picture", MFD_CLOEXEC);
    size_t n = strlen(text), n_written = 0;
    while (fd >= 0 && n_written < n) {
        ssize_t more = pwrite(fd, text + n_written, n - n_written, (off_t)n_written);
        if (more <= 0) {
            close(fd);
            return -1;
        }
        n_written += (size_t)more;
    }
    return fd;
}

exit_status gnuplot_draw(const cli *c, const char *dir, const char *script, const char *path,
                         int *status_out) {
    output out;
    TRY(output_begin(&out, c, "the picture", path));
    int drawn = file_of(""), text = file_of(script);
    *status_out = drawn < 0 || text < 0 ? 1 : run(dir, text, drawn);
    if (*status_out == 0 && copy_drawn(drawn, out.stream) <= 0) *status_out = 1;
    if (drawn >= 0) close(drawn);
    if (text >= 0) close(text);
    exit_status bad = *status_out == 0 ? output_end(&out) : EXIT_DONE;
    output_drop(&out);
    return bad;
}

char *gnuplot_plain(char *text) {
    for (char *t = text; *t; t++)
        if (strchr("\"'\\`@{}_^&~$", *t) || (unsigned char)*t < ' ') *t = ' ';
    return text;
}

#include "draw/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int gnuplot_run(const char *dir, const char *script) {
    char program[] = "gnuplot", execute[] = "-e";
    char *const argv[] = {program, execute, (char *)(uintptr_t)script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions)) return GNUPLOT_MISSING;
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return GNUPLOT_MISSING;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

char *gnuplot_plain(char *text) {
    for (char *t = text; *t; t++)
        if (strchr("\"'\\`@{}_^&~$", *t) || (unsigned char)*t < ' ') *t = ' ';
    return text;
}

/* Checkpoints that are kept beside the last one, as folders of links to its files: no byte is
 * written twice, and each is a run's folder itself. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP "step-"

static bool is_checkpoint(const char *name) {
    static const char *const begins[] = {"state.safetensors", "model.safetensors", "state-",
                                         "model-", "run.json"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(name, begins[i], strlen(begins[i]))) return true;
    return false;
}

static exit_status failed(const char *path, const char *what) {
    return complain(EXIT_FAILED, "the checkpoint %.300s cannot be %s: %s", path, what,
                    strerror(errno));
}

/* Files of others stay, and the folder with them. */
static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *f; folder && (f = readdir(folder));)
        if (is_checkpoint(f->d_name)) unlinkat(dirfd(folder), f->d_name, 0);
    if (folder) closedir(folder);
    rmdir(path);
}

static exit_status link_files(const char *from, const char *to) {
    DIR *source = opendir(from), *target = opendir(to);
    exit_status bad = source && target ? EXIT_DONE : failed(to, "kept");
    for (struct dirent *f; !bad && (f = readdir(source));)
        if (is_checkpoint(f->d_name) &&
            linkat(dirfd(source), f->d_name, dirfd(target), f->d_name, 0))
            bad = failed(to, "kept");
    if (source) closedir(source);
    if (target) closedir(target);
    return bad;
}

exit_status checkpoint_keep(const cli *c, const char *name) {
    char path[4096], made[4096 + 8];
    snprintf(path, sizeof path, "%.3900s/%.60s", c->o.out, name);
    snprintf(made, sizeof made, "%s.new", path);
    remove_folder(made); /* of a run that was killed */
    if (mkdir(made, 0777)) return failed(path, "kept");
    exit_status bad = link_files(c->o.out, made);
    if (!bad && rename(made, path) && renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_EXCHANGE))
        bad = failed(path, "kept");
    remove_folder(made); /* or the one before */
    return bad;
}

/* "step-12": 12; -1: it has another name. */
static long long step_of(const char *name) {
    char *end;
    if (strncmp(name, STEP, strlen(STEP)) || name[strlen(STEP)] == '-') return -1;
    long long step = strtoll(name + strlen(STEP), &end, 10);
    return *end || end == name + strlen(STEP) ? -1 : step;
}

/* How many such folders are of later steps than this one. */
static int64_t count_later(const char *out, long long step) {
    int64_t n = 0;
    DIR *folder = opendir(out);
    for (struct dirent *f; folder && (f = readdir(folder));) n += step_of(f->d_name) > step;
    if (folder) closedir(folder);
    return n;
}

exit_status checkpoint_keep_last(const cli *c, int64_t step) {
    char name[60], path[4096];
    snprintf(name, sizeof name, STEP "%lld", (long long)step);
    exit_status bad = checkpoint_keep(c, name);
    DIR *folder = bad ? NULL : opendir(c->o.out);
    for (struct dirent *f; folder && (f = readdir(folder));) {
        long long of = step_of(f->d_name);
        if (of < 0 || of > step || count_later(c->o.out, of) < c->o.keep) continue;
        snprintf(path, sizeof path, "%.3800s/%.200s", c->o.out, f->d_name);
        remove_folder(path);
    }
    if (folder) closedir(folder);
    return bad;
}

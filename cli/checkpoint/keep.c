/* Checkpoints that are kept beside the last one, as folders of links to its files: no byte is
 * written twice, and each is a run's folder itself. */
#include "checkpoint/checkpoint.h"
#include "restart/restart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP   "step-"
#define BEST   "best"
#define HIDDEN ".weft-"
#define ASIDE  "damaged-"

static bool is_checkpoint(const char *name) {
    static const char *const begins[] = {
        "state.safetensors", "model.safetensors", "state-",      "model-",
        "model_ema",         "run.json",          "config.json", "tokenizer.json",
        "vocab.json",        "merges.txt",        "workers-"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(name, begins[i], strlen(begins[i]))) return true;
    return false;
}

static exit_status failed(const char *path, const char *what) {
    return complain(EXIT_FAILED, "the checkpoint %.300s cannot be %s: %s", path, what,
                    strerror(errno));
}

/* Whether there is something in the folder that is no checkpoint's. */
static bool has_others(const char *path) {
    bool any = false;
    DIR *folder = opendir(path);
    for (struct dirent *f; folder && (f = readdir(folder));)
        any |= !is_checkpoint(f->d_name) && strcmp(f->d_name, ".") && strcmp(f->d_name, "..");
    if (folder) closedir(folder);
    return any;
}

/* Files of others stay, and the folder with them. */
static void remove_files(const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *f; folder && (f = readdir(folder));)
        if (is_checkpoint(f->d_name)) unlinkat(dirfd(folder), f->d_name, 0);
    if (folder) closedir(folder);
    rmdir(path);
}

/* An incomplete folder has another name, so that it is not mistaken for a checkpoint. */
static void hidden_path(const cli *c, const char *name, char path[4096]) {
    snprintf(path, 4096, "%.3800s/" HIDDEN "%.200s", c->o.out, name);
}

static void remove_folder(const cli *c, const char *name) {
    char path[4096], hidden[4096];
    snprintf(path, sizeof path, "%.3800s/%.200s", c->o.out, name);
    hidden_path(c, name, hidden);
    remove_files(has_others(path) || rename(path, hidden) ? path : hidden);
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

/* "step-12": 12; -1: it has another name. */
static long long step_of(const char *name) {
    char *end;
    if (strncmp(name, STEP, strlen(STEP)) || name[strlen(STEP)] == '-') return -1;
    long long step = strtoll(name + strlen(STEP), &end, 10);
    return *end || end == name + strlen(STEP) ? -1 : step;
}

void checkpoint_remove_leftovers(const cli *c) {
    wf_file_remove_leftovers(c->o.out);
    DIR *folder = opendir(c->o.out);
    for (struct dirent *f; folder && (f = readdir(folder));) {
        const char *name = f->d_name + strlen(HIDDEN);
        char path[4096];
        if (strncmp(f->d_name, HIDDEN, strlen(HIDDEN)) || (step_of(name) < 0 && strcmp(name, BEST)))
            continue;
        hidden_path(c, name, path);
        remove_files(path);
    }
    if (folder) closedir(folder);
}

static exit_status keep_as(const cli *c, const char *name) {
    char path[4096], made[4096];
    snprintf(path, sizeof path, "%.3800s/%.200s", c->o.out, name);
    hidden_path(c, name, made);
    checkpoint_remove_leftovers(c);
    if (has_others(path)) { /* which stay where they are */
        remove_files(path);
        return link_files(c->o.out, path);
    }
    if (mkdir(made, 0777)) return failed(path, "kept");
    exit_status bad = link_files(c->o.out, made);
    if (!bad && rename(made, path) && renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_EXCHANGE))
        bad = failed(path, "kept");
    remove_files(made); /* an incomplete folder, or the previous one */
    return bad;
}

/* How many such folders are of later steps than this one. */
static int64_t count_later(const char *out, long long step) {
    int64_t n = 0;
    DIR *folder = opendir(out);
    for (struct dirent *f; folder && (f = readdir(folder));) n += step_of(f->d_name) > step;
    if (folder) closedir(folder);
    return n;
}

exit_status checkpoint_keep_best(const cli *c) {
    return keep_as(c, BEST);
}

exit_status checkpoint_keep_last(const cli *c, int64_t step) {
    char name[60];
    snprintf(name, sizeof name, STEP "%lld", (long long)step);
    exit_status bad = keep_as(c, name);
    DIR *folder = bad ? NULL : opendir(c->o.out);
    for (struct dirent *f; folder && (f = readdir(folder));) {
        long long of = step_of(f->d_name);
        if (of < 0 || of > step || count_later(c->o.out, of) < c->o.keep) continue;
        remove_folder(c, f->d_name);
    }
    if (folder) closedir(folder);
    return bad;
}

/* ---- a damaged checkpoint ---- */

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A kept checkpoint may be a link to the same damaged file. */
static void forget_kept(const cli *c, const char *damaged, const char *name) {
    DIR *folder = opendir(c->o.out);
    for (struct dirent *f; folder && (f = readdir(folder));) {
        char path[4096];
        snprintf(path, sizeof path, "%.3000s/%.200s/%.200s", c->o.out, f->d_name, name);
        if (step_of(f->d_name) >= 0 && is_same_file(path, damaged)) unlink(path);
    }
    if (folder) closedir(folder);
}

void checkpoint_set_aside(const cli *c) {
    char path[4096], aside[4096], *name;
    if (!restart_number()) return;
    checkpoint_path(c, "state", path);
    name = strrchr(path, '/') + 1;
    snprintf(aside, sizeof aside, "%.*s" ASIDE "%s", (int)(name - path), path, name);
    if (rename(path, aside)) return; /* another rank has done it */
    forget_kept(c, aside, name);
    history_retry(c->history);
    complain(EXIT_DONE, "%.3800s is now %.3800s: the run goes back to the checkpoint before", path,
             aside);
}

/* Returns whether a damaged checkpoint was renamed. Otherwise --out has none because the run has
 * not saved yet, and kept ones are of another run. */
static bool is_set_aside(const cli *c) {
    char path[4096];
    return !checkpoint_exists(c) && !access(checkpoint_path(c, ASIDE "state", path), F_OK);
}

/* Returns the step of the last kept checkpoint; -1: none. */
static long long last_kept(const cli *c) {
    long long last = -1;
    DIR *folder = opendir(c->o.out);
    for (struct dirent *f; folder && (f = readdir(folder));) {
        cli kept = *c;
        char path[4096], out[4096];
        snprintf(out, sizeof out, "%.3700s/%.60s", c->o.out, f->d_name);
        kept.o.out = out;
        if (step_of(f->d_name) > last && !access(checkpoint_path(&kept, "state", path), F_OK))
            last = step_of(f->d_name);
    }
    if (folder) closedir(folder);
    return last;
}

/* The file that makes the checkpoint complete comes last. */
static bool is_last_file(const char *name) {
    return !strcmp(name, "state.safetensors") || !strcmp(name, "state.safetensors.index.json");
}

static bool restore_from(const char *from, const char *to, bool last) {
    DIR *source = opendir(from), *target = opendir(to);
    bool is_whole = source && target;
    for (struct dirent *f; is_whole && (f = readdir(source));) {
        if (!is_checkpoint(f->d_name) || is_last_file(f->d_name) != last) continue;
        unlinkat(dirfd(target), f->d_name, 0);
        is_whole = !linkat(dirfd(source), f->d_name, dirfd(target), f->d_name, 0);
    }
    if (source) closedir(source);
    if (target) closedir(target);
    return is_whole;
}

void checkpoint_restore_kept(const cli *c) {
    char from[4096];
    long long step = is_set_aside(c) ? last_kept(c) : -1;
    if (step < 0) return;
    snprintf(from, sizeof from, "%.3800s/" STEP "%lld", c->o.out, step);
    if (restore_from(from, c->o.out, false)) (void)restore_from(from, c->o.out, true);
}

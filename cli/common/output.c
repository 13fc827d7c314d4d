#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static exit_status failed(const char *what, const char *path, const char *why) {
    const char *where = strcmp(path, "-") ? path : "on standard output";
    return complain(EXIT_FAILED, "%s %.300s cannot be written: %s", what, where, why);
}

/* ---- where a path leads ---- */

typedef enum place { PLACE_FILE, PLACE_DESCRIPTOR, PLACE_SPECIAL } place;

static void folder_of(const char *path, char folder[4096]) {
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, 4096, "%.*s", (int)(slash - path + 1), path);
    else
        strcpy(folder, "./");
}

/* The process's own descriptor that the path names, as /dev/stdout does, or -1. Opened by its name
 * it would be another file position, and a rename would replace the name for all programs. */
static int own_descriptor(const char *path) {
    static const char *const standard[] = {"stdin", "stdout", "stderr"};
    char folder[4096], real[4096], own[64], *end;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!strcmp(path, "-")) return STDOUT_FILENO;
    folder_of(path, folder);
    if (!realpath(folder, real)) return -1;
    for (int fd = 0; fd < 3 && !strcmp(real, "/dev"); fd++)
        if (!strcmp(name, standard[fd])) return fd;
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    long fd = strtol(name, &end, 10);
    return !strcmp(real, own) && end != name && !*end && fd >= 0 && fd < 1 << 20 ? (int)fd : -1;
}

static place place_of(const char *path) {
    struct stat about;
    if (own_descriptor(path) >= 0) return PLACE_DESCRIPTOR;
    bool is_special =
        stat(path, &about) == 0 && (S_ISCHR(about.st_mode) || S_ISFIFO(about.st_mode));
    return is_special ? PLACE_SPECIAL : PLACE_FILE;
}

static const char *check_file(const char *path) {
    struct stat about;
    char folder[4096];
    if (!*path) return "its name is empty";
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) return "it is not a regular file";
    folder_of(path, folder);
    return access(folder, W_OK | X_OK) == 0 ? NULL : strerror(errno);
}

exit_status output_check_file(const char *what, const char *path) {
    const char *why = strlen(path) > 4000 ? strerror(ENAMETOOLONG) : check_file(path);
    return why ? failed(what, path, why) : EXIT_DONE;
}

static const char *check_descriptor(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return strerror(errno);
    return (flags & O_ACCMODE) == O_RDONLY ? "it is closed, or can only be read" : NULL;
}

exit_status output_check(const char *what, const char *path) {
    place where = place_of(path);
    if (where == PLACE_FILE) return output_check_file(what, path);
    const char *why = where == PLACE_DESCRIPTOR ? check_descriptor(own_descriptor(path)) : NULL;
    if (why) return failed(what, path, why);
    if (where == PLACE_SPECIAL && access(path, W_OK)) return failed(what, path, strerror(errno));
    return EXIT_DONE;
}

/* ---- writing ---- */

exit_status output_begin(output *out, const cli *c, const char *what, const char *path) {
    *out = (output){.c = c, .what = what};
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return failed(what, path, strerror(ENAMETOOLONG));
    out->stream = open_memstream(&out->text, &out->n);
    return out->stream ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}

void output_drop(output *out) {
    if (out->stream) fclose(out->stream);
    free(out->text);
    out->stream = NULL;
    out->text = NULL;
}

/* NULL, or why not. */
static const char *write_all(int fd, const char *text, size_t n) {
    for (size_t n_done = 0; n_done < n;) {
        ssize_t now = write(fd, text + n_done, n - n_done);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) return strerror(now ? errno : ENOSPC);
        n_done += (size_t)now;
    }
    return NULL;
}

/* A pipe without a reader is not waited for. */
static const char *write_special(const output *out) {
    int fd = open(out->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return errno == ENXIO ? "no process reads that pipe" : strerror(errno);
    bool waits = fcntl(fd, F_SETFL, 0) == 0;
    const char *why = waits ? write_all(fd, out->text, out->n) : strerror(errno);
    return close(fd) && !why ? strerror(errno) : why;
}

static exit_status put(output *out) {
    const char *why = NULL;
    switch (place_of(out->path)) {
    case PLACE_FILE:
        return complain_of(out->c, wf_file_replace(out->c->ctx, out->path, out->text, out->n));
    case PLACE_DESCRIPTOR:
        why = check_descriptor(own_descriptor(out->path));
        if (!why && fflush(stdout)) why = strerror(errno);
        if (!why) why = write_all(own_descriptor(out->path), out->text, out->n);
        break;
    case PLACE_SPECIAL:
        why = write_special(out);
        break;
    }
    return why ? failed(out->what, out->path, why) : EXIT_DONE;
}

exit_status output_end(output *out) {
    bool good = !ferror(out->stream);
    good &= fclose(out->stream) == 0;
    out->stream = NULL;
    exit_status bad = good ? put(out) : complain(EXIT_FAILED, "no memory left");
    output_drop(out);
    return bad;
}

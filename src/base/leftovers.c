/* Stale temporary files of killed writers. A writer locks its file while the file has a temporary
 * name, and the lock ends with the process. So the test for a writer needs no process id, which
 * another process may have reused. */
#include "base/replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/file.h>

static bool is_temporary(const char *name) {
    long pid;
    int i;
    char again[64];
    if (sscanf(name, ".weft-%ld-%d.tmp", &pid, &i) != 2 || pid < 0 || i < 0) return false;
    snprintf(again, sizeof again, WFI_TEMPORARY_NAME, pid, i);
    return strcmp(name, again) == 0;
}

/* With the lock in hand, the name is still that file's: no writer renames a file that another
 * process holds a lock on. */
static void remove_if_left(int folder, const char *name) {
    struct stat opened, named;
    int fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == opened.st_ino &&
        named.st_dev == opened.st_dev)
        (void)unlinkat(folder, name, 0);
    close(fd);
}

DIR *wfi_folder_open(int folder) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !entries) close(fd);
    return entries;
}

void wfi_leftovers_remove(int folder) {
    DIR *entries = wfi_folder_open(folder);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));)
        if (is_temporary(entry->d_name)) remove_if_left(dirfd(entries), entry->d_name);
    closedir(entries);
}

void wf_file_remove_leftovers(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    wfi_leftovers_remove(fd);
    close(fd);
}

bool wfi_leftovers_spare(int fd) {
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

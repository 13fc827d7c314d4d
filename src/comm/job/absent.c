/* The description of a missing rank in error messages. */
#include "comm/job/control.h"

#include <stdio.h>
#include <string.h>

const char *wfi_process_state(int64_t pid) {
    char path[48], line[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) fclose(file);
    line[n] = 0;
    const char *end = strrchr(line, ')'); /* the program's name may have parentheses */
    if (!end || end[1] != ' ') return "";
    if (end[2] == 'T') return "; the process is stopped (SIGCONT lets it go on)";
    return end[2] == 't' ? "; the process is stopped by a debugger" : "";
}

void wfi_control_describe_absent(const wfi_control *c, int rank, const char *how_long, char *text,
                                 size_t bytes) {
    int64_t pid = wfi_control_pid_of(c, rank);
    if (pid < 0) pid = -pid; /* the rank is leaving */
    char doing[WFI_CONTROL_DOING];
    wfi_control_doing(c, rank, doing);
    if (!pid)
        snprintf(text, bytes, "rank %d has not arrived%s", rank, how_long);
    else
        snprintf(text, bytes, "rank %d (process %lld) has not arrived%s; its last call: %s%s", rank,
                 (long long)pid, how_long, doing, wfi_control_process_state(c, rank));
}

#include "base/limits.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_MOST 512
#define LINE_MOST 4096

/* A hierarchy of control groups as it is mounted, with a group in it. */
typedef struct hierarchy {
    char mount[PATH_MOST];
    char shown[PATH_MOST]; /* the group that is seen at the mount: not "/" in some containers */
    char group[PATH_MOST]; /* this process's */
    bool is_v1;
} hierarchy;

/* Whether a list with commas contains the word. */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && !strncmp(list, word, n)) return true;
    return false;
}

static FILE *open_under(const char *root, const char *path) {
    char full[2 * PATH_MOST];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && n < (int)sizeof full ? fopen(full, "re") : NULL;
}

/* Finds the mount of cgroup version 1 with that controller, or else of version 2, which has all
 * controllers. */
static bool find_mount(const char *root, const char *controller, hierarchy *h) {
    char line[LINE_MOST], shown[PATH_MOST], mount[PATH_MOST], type[64], options[PATH_MOST];
    bool is_found = false;
    FILE *file = open_under(root, "/proc/self/mountinfo");
    while (file && !h->is_v1 && fgets(line, sizeof line, file)) {
        const char *end = strstr(line, " - ");
        if (!end || sscanf(line, "%*s %*s %*s %511s %511s", shown, mount) != 2) continue;
        if (sscanf(end + 3, "%63s %*s %511s", type, options) != 2) continue;
        h->is_v1 = !strcmp(type, "cgroup") && has_word(options, controller);
        if (!h->is_v1 && strcmp(type, "cgroup2") != 0) continue;
        is_found = true;
        snprintf(h->mount, PATH_MOST, "%s", mount);
        snprintf(h->shown, PATH_MOST, "%s", shown);
    }
    if (file) fclose(file);
    return is_found;
}

/* A line is number:controllers:path; version 2 has no controllers there. */
static bool find_group(const char *root, const char *controller, hierarchy *h) {
    char line[LINE_MOST];
    bool is_found = false;
    FILE *file = open_under(root, "/proc/self/cgroup");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        is_found = h->is_v1 ? has_word(list + 1, controller) : !list[1];
        snprintf(h->group, PATH_MOST, "%.*s", PATH_MOST - 1, path);
    }
    if (file) fclose(file);
    return is_found;
}

/* Numbers in a file of the group; how many there are. "max" is none. */
static int read_numbers(const char *root, const char *group, const char *name, double *first_out,
                        double *second_out) {
    char path[2 * PATH_MOST];
    snprintf(path, sizeof path, "%.600s/%s", group, name);
    FILE *file = open_under(root, path);
    int n = file ? fscanf(file, "%lf %lf", first_out, second_out) : 0;
    if (file) fclose(file);
    return n > 0 ? n : 0;
}

static double cpus_of(const char *root, const char *group, bool is_v1) {
    double quota = 0, period = 0, none;
    if (!is_v1)
        return read_numbers(root, group, "cpu.max", &quota, &period) == 2 ? quota / period : 0;
    if (!read_numbers(root, group, "cpu.cfs_quota_us", &quota, &none) || quota <= 0) return 0;
    return read_numbers(root, group, "cpu.cfs_period_us", &period, &none) ? quota / period : 0;
}

static double bytes_of(const char *root, const char *group, bool is_v1) {
    const double unlimited = 0x1p60; /* version 1 has no "max": it shows the largest page count */
    double bytes = 0, none;
    (void)read_numbers(root, group, is_v1 ? "memory.limit_in_bytes" : "memory.max", &bytes, &none);
    return bytes > 0 && bytes < unlimited ? bytes : 0;
}

/* The least that the process's group and those above it allow; 0: all. */
static double limit(const char *root, const char *controller,
                    double (*of)(const char *root, const char *group, bool is_v1)) {
    hierarchy h = {.is_v1 = false};
    char at[2 * PATH_MOST];
    double least = 0;
    if (!find_mount(root, controller, &h) || !find_group(root, controller, &h)) return 0;
    size_t n_shown = strcmp(h.shown, "/") ? strlen(h.shown) : 0;
    const char *group = strncmp(h.group, h.shown, n_shown) ? "" : h.group + n_shown;
    snprintf(at, sizeof at, "%s%s", h.mount, strcmp(group, "/") ? group : "");
    for (char *end = at + strlen(at); end; end = strrchr(at, '/')) {
        *end = 0;
        if (strlen(at) < strlen(h.mount)) break;
        double here = of(root, at, h.is_v1);
        if (here > 0 && (least <= 0 || here < least)) least = here;
    }
    return least;
}

wf_limits wfi_limits_under(const char *root) {
    cpu_set_t cores;
    wf_limits found = {.cpu_quota = limit(root, "cpu", cpus_of),
                       .memory_bytes = (size_t)limit(root, "memory", bytes_of)};
    found.n_cores = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
    if (found.cpu_quota > 0 && found.cpu_quota < found.n_cores)
        found.n_cores = found.cpu_quota < 1 ? 1 : (int)found.cpu_quota;
    return found;
}

wf_limits wf_info_limits(void) {
    return wfi_limits_under("");
}

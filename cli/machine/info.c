/* weft info: the machine, devices, libraries and environment. */
#include "common/output.h"
#include "common/processor.h"
#include "common/text.h"
#include "job/report.h"
#include "machine/measure.h"

#include <fcntl.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static json_t *caches(hwloc_topology_t topology) {
    json_t *list = json_array();
    hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, 0);
    for (hwloc_obj_t o = core; o; o = o->parent) {
        char name[64];
        if (!hwloc_obj_type_is_dcache(o->type)) continue;
        hwloc_obj_type_snprintf(name, sizeof name, o, 0);
        json_array_append_new(list, json_pack("{s:s, s:I, s:i}", "name", name, "bytes",
                                              (json_int_t)o->attr->cache.size, "shared_by",
                                              hwloc_bitmap_weight(o->cpuset)));
    }
    return list;
}

/* hwloc reads it in /sys; 0: the system does not say. */
static json_int_t memory_bytes(hwloc_topology_t topology) {
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (root->total_memory) return (json_int_t)root->total_memory;
    return pages > 0 && page > 0 ? (json_int_t)pages * page : 0;
}

static json_t *machine(void) {
    hwloc_topology_t topology;
    char name[100];
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 0); /* else it prints messages about missing devices */
    if (hwloc_topology_init(&topology)) return NULL;
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    json_t *found = json_pack("{s:s, s:i, s:i, s:i, s:I, s:o}", "cpu", processor_name(name),
                              "packages", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                              "cores", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                              "hardware_threads", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU),
                              "memory_bytes", memory_bytes(topology), "caches", caches(topology));
    hwloc_topology_destroy(topology);
    json_object_set_new(found, "instructions", processor_instructions());
    return found;
}

static json_t *libraries(void) {
    json_t *list = json_array();
    for (int i = 0; wf_info_library(i); i++)
        json_array_append_new(list, json_string(wf_info_library(i)));
    for (int i = 0; wf_data_library(i); i++)
        json_array_append_new(list, json_string(wf_data_library(i)));
    return list;
}

static json_t *variables(void) {
    json_t *list = json_array();
    wf_variable v;
    for (int i = 0; wf_info_variable(i, &v); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b, s:s, s:s}", "name", v.name, "value",
                                        v.value, "is_set", v.is_set, "set_by",
                                        v.is_set ? "environment" : "default", "help", v.help));
    return list;
}

static void say_machine(const cli *c, const json_t *m) {
    char memory[TEXT_BYTES] = "memory: unknown", size[TEXT_BYTES], sets[300] = "";
    double bytes = (double)json_integer_value(json_object_get(m, "memory_bytes"));
    size_t i;
    const json_t *cache, *set;
    if (bytes > 0) text_of_bytes(memory, bytes);
    json_array_foreach(json_object_get(m, "instructions"), i, set)
        TEXT_ADD(sets, " %s", json_string_value(set));
    say(c, "machine    %s\n", json_string_value(json_object_get(m, "cpu")));
    say(c, "           %lld packages, %lld cores, %lld hardware threads, %s\n",
        (long long)json_integer_value(json_object_get(m, "packages")),
        (long long)json_integer_value(json_object_get(m, "cores")),
        (long long)json_integer_value(json_object_get(m, "hardware_threads")), memory);
    if (*sets) say(c, "          %s\n", sets);
    json_array_foreach(json_object_get(m, "caches"), i, cache) {
        int n_sharing = (int)json_integer_value(json_object_get(cache, "shared_by"));
        say(c, "           %s %s, shared by %d hardware thread%s\n",
            json_string_value(json_object_get(cache, "name")),
            text_of_bytes(size, (double)json_integer_value(json_object_get(cache, "bytes"))),
            n_sharing, n_sharing == 1 ? "" : "s");
    }
}

/* Prints the limits of a container. */
static void say_limits(const cli *c, const wf_limits *limits) {
    char size[TEXT_BYTES];
    if (limits->cpu_quota > 0)
        say(c, "%-10s its control group has the time of %.4g CPUs\n", "", limits->cpu_quota);
    if (limits->memory_bytes)
        say(c, "%-10s its control group may have %s of memory\n", "",
            text_of_bytes(size, (double)limits->memory_bytes));
}

/* Finds the machine's devices of a kind, or the reason that there are none. A child process calls
 * the driver, because a broken driver may end its caller. Returns whether there is any. */
static bool find_devices(cli *c, const char *kind, char *text, size_t bytes) {
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got = 1;
    snprintf(text, bytes, "%s: its driver ended the process that asked for its devices", kind);
    if (pipe(ends)) return false;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null >= 0) dup2(null, STDERR_FILENO);
        bool is_found = wf_info_devices(c->ctx, kind, text, bytes) == WF_OK;
        const char *said = is_found ? text : wf_context_error(c->ctx);
        _exit(write(ends[1], said, strlen(said)) < 0 ? 2 : !is_found);
    }
    close(ends[1]);
    char *said = child > 0 ? calloc(1, bytes) : NULL;
    while (said && n + 1 < bytes && got > 0) {
        got = read(ends[0], said + n, bytes - 1 - n);
        if (got > 0) n += (size_t)got;
    }
    close(ends[0]);
    if (child > 0) waitpid(child, &status, 0);
    bool is_whole = said && n && WIFEXITED(status) && WEXITSTATUS(status) < 2;
    if (is_whole) snprintf(text, bytes, "%s", said);
    free(said);
    return is_whole && WEXITSTATUS(status) == 0;
}

/* Those that are set, and with --all the rest. */
static void say_variables(const cli *c, const json_t *environment) {
    const json_t *entry;
    size_t i, n_said = 0;
    json_array_foreach(environment, i, entry) {
        if (!c->o.all && !json_is_true(json_object_get(entry, "is_set"))) continue;
        say(c, "%-10s %s=%s (by %s)\n           %s\n", n_said++ ? "" : "variables",
            json_string_value(json_object_get(entry, "name")),
            json_string_value(json_object_get(entry, "value")),
            json_string_value(json_object_get(entry, "set_by")),
            json_string_value(json_object_get(entry, "help")));
    }
    if (!c->o.all)
        say(c, "%-10s %zu of %zu are set; --all shows all\n", n_said ? "" : "variables", n_said,
            json_array_size(environment));
}

exit_status run_info(cli *c) {
    if (c->o.measure) TRY(output_check_file("the cluster file", c->o.measure));
    json_t *found = machine(), *libs = libraries(), *environment = variables(), *entry;
    size_t i;
    const wf_limits limits = wf_info_limits();
    int n_cores = limits.n_cores;
    say(c, "weft       %s\n", wf_version());
    if (found) say_machine(c, found);
    say(c, "devices    cpu: this process may use %d hardware thread%s\n", n_cores,
        n_cores == 1 ? "" : "s");
    say_limits(c, &limits);
    char cuda[600], opencl[600];
    bool has_cuda = find_devices(c, "cuda", cuda, sizeof cuda);
    bool has_opencl = find_devices(c, "opencl", opencl, sizeof opencl);
    say(c, "%-10s %s%s\n", "", has_cuda ? "cuda: " : "", cuda);
    say(c, "%-10s %s%s\n", "", has_opencl ? "opencl: " : "", opencl);
    json_array_foreach(libs, i, entry)
        say(c, "%-10s %s\n", i ? "" : "libraries", json_string_value(entry));
    say_variables(c, environment);
    exit_status bad =
        c->o.measure ? measure_machine(c, json_member(found, "memory_bytes")) : EXIT_DONE;
    exit_status written = report_write(
        c, json_pack("{s:s, s:o, s:[{s:s, s:i}], s:s?, s:s?, s:{s:f, s:I}, s:o, s:o}", "weft",
                     wf_version(), "machine", found ? found : json_null(), "devices", "name", "cpu",
                     "cores", n_cores, "cuda", has_cuda ? cuda : NULL, "opencl",
                     has_opencl ? opencl : NULL, "limits", "cpu_quota", limits.cpu_quota,
                     "memory_limit_bytes", (json_int_t)limits.memory_bytes, "libraries", libs,
                     "environment", environment));
    return bad ? bad : written;
}

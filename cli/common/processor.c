#include "common/processor.h"
#include "common/clock.h"
#include "common/samples.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/group.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Less is a machine's own work. */
#define OTHERS_SHARE 0.05
/* The system counts in ticks: of less time it knows too little. */
#define LEAST_SECONDS 0.5
/* Threads of one rank wait for each other, so a core that is taken stops the others, too. */
#define CROWDED_SHARE   0.25
#define CROWDED_SECONDS 3

/* ---- identity ---- */

const char *processor_name(char name[100]) {
    snprintf(name, 100, "unknown");
#if defined(__x86_64__)
    unsigned text[13] = {0}, ignored;
    if (__get_cpuid(0x80000000u, &text[0], &ignored, &ignored, &ignored) &&
        text[0] >= 0x80000004u) {
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002u + i, &text[4 * i], &text[4 * i + 1], &text[4 * i + 2],
                        &text[4 * i + 3]);
        text[12] = 0;
        const char *begin = (const char *)text;
        while (*begin == ' ') begin++;
        if (*begin) snprintf(name, 100, "%.48s", begin);
        for (size_t n = strlen(name); n > 0 && name[n - 1] == ' ';) name[--n] = 0;
    }
#else
    char line[300];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            snprintf(name, 100, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
                     strchr(line, ':') + 2);
    if (file) fclose(file);
#endif
    return name;
}

#if defined(__x86_64__)
typedef struct instruction_set {
    const char *name; /* as Linux calls it */
    unsigned leaf, subleaf;
    int word, bit;       /* word: a, b, c, d of cpuid */
    unsigned long state; /* the state that the system must save for it, in xgetbv's words */
} instruction_set;

#define SSE_STATE    0x2ul
#define AVX_STATE    0x6ul
#define AVX512_STATE 0xe6ul
#define AMX_STATE    0x60000ul

static const instruction_set sets[] = {
    {"sse4_1", 1, 0, 2, 19, SSE_STATE},
    {"avx", 1, 0, 2, 28, AVX_STATE},
    {"fma", 1, 0, 2, 12, AVX_STATE},
    {"avx2", 7, 0, 1, 5, AVX_STATE},
    {"avx_vnni", 7, 1, 0, 4, AVX_STATE},
    {"avx512f", 7, 0, 1, 16, AVX512_STATE},
    {"avx512_vnni", 7, 0, 2, 11, AVX512_STATE},
    {"avx512_bf16", 7, 1, 0, 5, AVX512_STATE},
    {"avx512_fp16", 7, 0, 3, 23, AVX512_STATE},
    {"amx_tile", 7, 0, 3, 24, AMX_STATE},
    {"amx_bf16", 7, 0, 3, 22, AMX_STATE},
    {"amx_int8", 7, 0, 3, 25, AMX_STATE},
};

static unsigned long kept_state(void) {
    unsigned a, b, c, d, low = 0, high = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (!(c & 1u << 27)) return SSE_STATE; /* no xgetbv */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | (unsigned long)high << 32;
}
#endif

json_t *processor_instructions(void) {
    json_t *list = json_array();
#if defined(__x86_64__)
    unsigned long kept = kept_state();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const instruction_set *set = &sets[i];
        unsigned words[4] = {0};
        bool known =
            __get_cpuid_count(set->leaf, set->subleaf, &words[0], &words[1], &words[2], &words[3]);
        if (known && words[set->word] & 1u << set->bit && (kept & set->state) == set->state)
            json_array_append_new(list, json_string(set->name));
    }
#endif
    return list;
}

/* ---- load ---- */

static double seconds_of(int who) {
    struct rusage u;
    if (getrusage(who, &u)) return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* NAN where there is no /proc. Time that a guest system lost to its host ("steal") counts, too. */
static double busy_seconds(int *n_cores_out) {
    char line[400];
    double ticks = 0;
    cpu_set_t cores;
    FILE *file = fopen("/proc/stat", "re");
    *n_cores_out = 0;
    if (sched_getaffinity(0, sizeof cores, &cores)) CPU_ZERO(&cores);
    while (file && fgets(line, sizeof line, file)) {
        int core = -1;
        double t[8] = {0};
        if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &core, &t[0], &t[1], &t[2], &t[3],
                   &t[4], &t[5], &t[6], &t[7]) < 9)
            continue;
        if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &cores)) continue;
        ticks += t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
        ++*n_cores_out;
    }
    if (file) fclose(file);
    return *n_cores_out ? ticks / (double)sysconf(_SC_CLK_TCK) : (double)NAN;
}

effort effort_now(void) {
    effort now = {.wall_s = now_seconds()};
    now.cpu_s = seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
    now.busy_s = busy_seconds(&now.n_cores);
    return now;
}

wf_status effort_since(const cli *c, const effort *begin, effort *spent_out) {
    effort now = effort_now();
    wf_status status = WF_OK;
    now.wall_s -= begin->wall_s;
    now.cpu_s -= begin->cpu_s;
    now.busy_s -= begin->busy_s;
    if (c->job) {
        wf_group *group;
        TRY(wf_group_create(c->job, NULL, &group));
        status = wf_group_all_reduce(group, &now.cpu_s, &now.cpu_s, 1, WF_F64, WF_SUM, NULL);
        wf_group_destroy(group);
        /* How busy other machines were is not known here. */
        if (wf_job_n_local_ranks(c->job) < wf_job_n_ranks(c->job)) now.busy_s = NAN;
    }
    *spent_out = now;
    return status;
}

double effort_of_others(const effort *spent) {
    double all = spent->wall_s * spent->n_cores;
    return spent->wall_s >= LEAST_SECONDS && all > 0
               ? fmin(1, fmax(0, (spent->busy_s - spent->cpu_s) / all)) + 0 * spent->busy_s
               : (double)NAN;
}

bool effort_is_crowded(const effort *spent, int n_threads) {
    return n_threads > 1 && spent->wall_s >= CROWDED_SECONDS &&
           effort_of_others(spent) >= CROWDED_SHARE;
}

void effort_say(const cli *c, const effort *spent) {
    double others = effort_of_others(spent);
    say(c, "cpu     %.2f s of CPU time in %.2f s\n", spent->cpu_s, spent->wall_s);
    if (others > OTHERS_SHARE)
        say(c, "        other programs took %.0f %% of the time: compare CPU times, not speeds\n",
            100 * others);
}

void effort_report(const effort *spent, json_t *report) {
    char name[100];
    json_object_set_new(report, "processor", json_string(processor_name(name)));
    json_object_set_new(report, "wall_seconds", json_number(spent->wall_s));
    json_object_set_new(report, "cpu_seconds", json_number(spent->cpu_s));
    json_object_set_new(report, "taken_by_others", json_number(effort_of_others(spent)));
}

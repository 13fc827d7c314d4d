/* Why a pipeline of n stages is not n times as fast as one device. All of it is measured: the
 * division of each rank's time, and single devices with the same and with the best split.
 *
 *     pipeline = compute + bubble + transfer + wait + host     (mean of the ranks)
 *     single   = compute + idle
 *     pipeline - single / n = bubble + transfer + wait + host - idle / n
 *                             + (compute of all ranks - compute of the single device) / n
 *
 * The bubble includes imbalance: while the longest stage computes, the others must wait.
 * The last line includes the cost of the smaller microbatch; the rest comes from sharing memory.
 */
#include "bench/experiment.h"

#include <math.h>

static double sum_of(const json_t *row, const char *field) {
    const json_t *times = json_object_get(row, "rank_times");
    double sum = 0;
    for (json_t *time = NULL; (time = next_row(times, time));) sum += row_number(time, field);
    return sum;
}

json_t *experiment_loss(const rounds *b) {
    const json_t *pipeline = experiment_best(b, "pipeline", NULL, NULL, 0);
    const json_t *single = experiment_best(b, "single device", NULL, NULL, 0);
    int64_t split = pipeline ? (int64_t)row_number(pipeline, "split") : 0;
    const json_t *same_split = experiment_best(b, "single device", NULL, NULL, split);
    if (!pipeline || !single || !same_split) return NULL;
    const json_t *times = json_object_get(pipeline, "rank_times");
    double n = (double)json_array_size(times), longest = 0;
    double seconds = row_mean(pipeline, "seconds"), single_s = row_mean(single, "seconds");
    double mean = sum_of(pipeline, "compute") / n, bubble = sum_of(pipeline, "bubble") / n;
    double transfer = sum_of(pipeline, "transfer") / n, alone = sum_of(single, "compute");
    double alone_split = sum_of(same_split, "compute");
    for (json_t *time = NULL; (time = next_row(times, time));)
        longest = fmax(longest, row_number(time, "compute"));
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "plan",
                     row_text(pipeline, "plan"), "split", (json_int_t)split, "seconds", seconds,
                     "ideal_seconds", single_s / n, "bubble", bubble - (longest - mean),
                     "imbalance", longest - mean, "small_microbatch", (alone_split - alone) / n,
                     "shared_memory", mean - alone_split / n, "transfer", transfer, "waiting",
                     seconds - mean - bubble - transfer, /* with the host's */
                     "single_idle", (alone - single_s) / n);
}

void experiment_say_loss(const rounds *b) {
    static const struct {
        const char *field, *text;
    } parts[] = {{"ideal_seconds", "ideal: the best single device, divided by its number"},
                 {"bubble", "bubble: the pipeline fills and drains"},
                 {"imbalance", "imbalance: the longest stage over the mean one"},
                 {"small_microbatch", "small microbatches: this split over the best, one device"},
                 {"shared_memory", "shared memory: busy neighbours, at the same split"},
                 {"transfer", "transfer"},
                 {"waiting", "waiting: waking up, queues, the host"},
                 {"single_idle", "less idle time of the single device"},
                 {"seconds", "measured"}};
    json_t *loss = experiment_loss(b);
    if (!loss) return;
    say(b->c, "\nWhere the rest of 2 x goes, for %s at split %.0f:\n", row_text(loss, "plan"),
        row_number(loss, "split"));
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        double seconds = row_number(loss, parts[k].field);
        say(b->c, "  %-58s %8.3f s %6.1f %%\n", parts[k].text, seconds,
            100 * seconds / row_number(loss, "ideal_seconds"));
    }
    json_decref(loss);
}

/* The help text of an option: the words of its row, or of a command where it has another meaning.
 * Also the options of a command's short help. */
#include "common/cli.h"
#include "common/text.h"

#include <string.h>

static const struct {
    option_id id;
    unsigned commands;
    const char *help;
} to_others[] = {
    {OPT_data, FOR_PLAN | FOR_BENCH | FOR_BENCH_ASYNC | FOR_TUNE,
     "synthetic, fashion-mnist, a folder of pictures, a text file, or a file of tokens "
     "(synthetic)"},
    {OPT_image, FOR_BENCH_PARALLEL, "height and width of the synthetic images (128; --quick: 96)"},
    {OPT_batch, FOR_PREDICT, "pictures at a time (32, or all if there are fewer)"},
    {OPT_batch, FOR_BENCH_PARALLEL, "samples per optimizer step (120; --quick: 40)"},
    {OPT_batch, FOR_BENCH_DDP, "samples per optimizer step and rank (32)"},
    {OPT_n_threads, RUNS, "threads of each rank's kernels (1)"},
    {OPT_loss, FOR_BENCH | FOR_TUNE,
     "loss function; mse: against one-hot targets (images: mse; text: cross-entropy)"},
    {OPT_plan, FOR_BENCH_DDP, "keys of every plan, except dp and overlap: bucket=1MiB"},
    {OPT_n_lanes, FOR_BENCH_ASYNC,
     "independent gradient sums, added in a fixed tree (4 per worker if they divide the batch, or "
     "2, or 1)"},
    {OPT_n_workers, FOR_BENCH_ASYNC, "workers, which share each batch (one per core, at least 2)"},
    {OPT_staleness, FOR_BENCH_ASYNC,
     "maximum staleness of a gradient, in steps, in the rows with a bound (4)"},
    {OPT_servers, FOR_BENCH_ASYNC,
     "highest number of parameter servers; rows have 1, 2, 4, ... and this number (2)"},
    {OPT_slow, FOR_BENCH_ASYNC,
     "slow one worker down by this factor in half of the rows; 1: no such rows (3)"},
    {OPT_devices, FOR_BENCH_PARALLEL, "two devices of one kind: cpu:2, cuda:2 (cpu:2)"},
    {OPT_ranks, FOR_TRAIN,
     "number of ranks, as processes on this machine; A:B with --restarts: B, and after a failure "
     "as many as are left, at least A"},
    {OPT_ranks, FOR_RUN,
     "number of processes; -n N is the same; required; A:B with --restarts: B, and after a "
     "failure as many as are left, at least A"},
    {OPT_grace, FOR_TRAIN | FOR_PLAN,
     "after SIGTERM or SIGINT, finish the step and save to --out, but end after this time at the "
     "latest (no limit)"},
    {OPT_restarts, FOR_RUN,
     "after a failure, start all ranks again, at most N times; ranks find the number of restarts "
     "in WEFT_RESTART"},
    {OPT_ranks, FOR_BENCH_ALLREDUCE, "number of ranks (one per core)"},
    {OPT_ranks, FOR_BENCH_DDP, "highest number of ranks (one per core)"},
    {OPT_ranks, FOR_BENCH_MEMORY, "highest number of ranks of a plan (one per core)"},
    {OPT_top_k, FOR_PREDICT, "print the N likeliest classes (1)"},
    {OPT_steps, FOR_GENERATE, "tokens to generate (50)"},
    {OPT_steps, FOR_SIMULATE, "with --update: simulated steps (100)"},
    {OPT_steps, FOR_BENCH_DDP, "timed steps per run (5)"},
    {OPT_steps, FOR_BENCH_MEMORY | FOR_BENCH_PRICE | FOR_BENCH_PREDICT, "timed steps per run (3)"},
    {OPT_repeat, FOR_BENCH, "timed steps, after one untimed step (5)"},
    {OPT_steps, FOR_BENCH_ASYNC, "steps per run; the first is not timed (60)"},
    {OPT_repeat, FOR_BENCH_MEMORY | FOR_BENCH_PRICE | FOR_BENCH_PREDICT | FOR_BENCH_ASYNC,
     "rounds; each round times everything once (3)"},
    {OPT_repeat, FOR_BENCH_PARALLEL, "rounds; each round times everything once (10; --quick: 3)"},
    {OPT_wire, FOR_BENCH_ALLREDUCE,
     "inproc: ranks as threads; shm: processes; mpi: processes of mpirun (inproc,shm)"},
    {OPT_out, FOR_BENCH_PARALLEL, "folder for tables, pictures and results.json (model-parallel)"},
    {OPT_out, PEER | FOR_BENCH_ASYNC, "folder for tables and pictures"},
    {OPT_out, FOR_BENCH_PREDICT, "folder for the picture and its numbers"},
    {OPT_plans, FOR_BENCH_PREDICT,
     "plans, separated by ; (two ranks: dp, zero=1, 2 and 3, pipelines, recompute, offload, tp)"},
    {OPT_out, FOR_CONVERT | FOR_TUNE, "file to write"},
    {OPT_init, FOR_CONVERT, "weights to read: safetensors, an index of shards, or a folder"},
    {OPT_draw, FOR_SIMULATE,
     "with --update: draw the timeline of the first 8 steps (local: whole rounds, or 32): .svg, "
     ".png or .txt"},
    {OPT_draw, FOR_ADVISE, "draw the rows as bars of time: .svg or .png"},
    {OPT_draw, FOR_PLAN,
     "draw the timeline: .svg, .png or .txt; with --cluster and --plan auto, time against memory "
     "of "
     "the plans: .svg or .png"},
    {OPT_cluster, FOR_BENCH_PUBLISHED, "cluster for all rows (each row's own)"},
    {OPT_trace, FOR_PLAN, "write the planned timeline of a step, for Perfetto"},
    {OPT_trace, FOR_DRAW, "trace to draw; --trace may be omitted"},
    {OPT_peers, FOR_BENCH_ALLREDUCE,
     "measure Open MPI and PyTorch over gloo too, in the same rounds"},
};

/* The first options of a command that has many; other commands show all. */
static const struct {
    unsigned flag;
    option_id first[13];
} shorts[] = {
    {FOR_TRAIN,
     {OPT_model, OPT_data, OPT_init, OPT_batch, OPT_epochs, OPT_steps, OPT_optimizer, OPT_lr,
      OPT_plan, OPT_devices, OPT_out, OPT_resume, N_OPTIONS}},
    {FOR_EVAL,
     {OPT_init, OPT_data, OPT_model, OPT_tokenizer, OPT_batch, OPT_plan, OPT_devices, OPT_json,
      N_OPTIONS}},
    {FOR_PREDICT,
     {OPT_init, OPT_data, OPT_model, OPT_top_k, OPT_logits, OPT_batch, OPT_plan, OPT_devices,
      OPT_csv, OPT_json, N_OPTIONS}},
    {FOR_GENERATE,
     {OPT_init, OPT_prompt, OPT_steps, OPT_tokenizer, OPT_temperature, OPT_top_k, OPT_seed,
      OPT_stop, OPT_plan, OPT_devices, OPT_json, N_OPTIONS}},
    {FOR_PLAN,
     {OPT_model, OPT_data, OPT_batch, OPT_n_micro, OPT_optimizer, OPT_plan, OPT_ranks, OPT_devices,
      OPT_device_memory, OPT_draw, OPT_program, OPT_json, N_OPTIONS}},
    {FOR_BENCH,
     {OPT_model, OPT_image, OPT_tokens, OPT_batch, OPT_n_micro, OPT_plan, OPT_devices,
      OPT_n_threads, OPT_dtype, OPT_repeat, OPT_profile, OPT_json, N_OPTIONS}},
};

const option_id *option_shorts(unsigned flag) {
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (shorts[i].flag == flag) return shorts[i].first;
    return NULL;
}

static const char *help_of(option_id id, unsigned flag) {
    for (size_t i = 0; i < sizeof to_others / sizeof *to_others; i++)
        if (to_others[i].id == id && to_others[i].commands & flag) return to_others[i].help;
    return NULL;
}

/* "algorithms of sums: root, ring, tree (direct; others by rank)" */
void option_describe(option_id id, unsigned flag, char *text, size_t bytes) {
    const option about = option_about(id);
    const char *usual, *name, *other = help_of(id, flag);
    char value[TEXT_BYTES];
    snprintf(text, bytes, "%s", other ? other : about.help);
    if (other) return;
    usual = option_default(id, value);
    bool has_default = usual && *usual && strcmp(usual, "0") && strcmp(usual, "false");
    for (int i = 0; (name = option_value_name(id, i)) != NULL; i++)
        text_add(text, bytes, "%s %s", i ? "," : "", name);
    if (has_default || about.note)
        text_add(text, bytes, " (%s%s%s)", has_default ? usual : "",
                 has_default && about.note ? "; " : "", about.note ? about.note : "");
}

const char *option_describe_other(option_id id, const command *about) {
    return option_about(id).commands & about->flag ? help_of(id, about->flag) : NULL;
}

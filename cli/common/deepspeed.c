/* DeepSpeed's configuration as options of ours. */
#include "common/deepspeed.h"

#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- rows: the meaning of each member ---- */

typedef enum meaning {
    IS_OURS,     /* our option `ours` */
    IS_TIME,     /* affects only speed, not results, and weft has no such option */
    IS_ONLY,     /* the only value that weft can do is `ours` */
    IS_LATER,    /* several members make one option: see below */
    IS_SAID,     /* somewhere else: `ours` says where */
    IS_CONTAINER /* of members that have rows */
} meaning;

/* The members of the object `of` that have this meaning. */
static const struct row {
    const char *of, *members;
    meaning meaning;
    const char *ours;
} rows[] = {
    {"", "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps", IS_LATER,
     NULL},
    {"", "gradient_clipping", IS_OURS, "clip_norm"},
    {"", "optimizer scheduler zero_optimization fp16 bf16 amp", IS_CONTAINER, NULL},
    {"optimizer", "type", IS_LATER, NULL},
    {"optimizer", "params", IS_CONTAINER, NULL},
    {"optimizer.params", "lr betas weight_decay adam_w_mode", IS_LATER, NULL},
    {"optimizer.params", "eps", IS_OURS, "epsilon"},
    {"optimizer.params", "momentum", IS_OURS, "momentum"},
    {"optimizer.params", "nesterov", IS_OURS, "nesterov"},
    {"optimizer.params", "dampening", IS_ONLY, "0"},
    {"optimizer.params", "bias_correction", IS_ONLY, "true"},
    {"optimizer.params", "amsgrad", IS_ONLY, "false"},
    {"optimizer.params", "torch_adam", IS_TIME, NULL},
    {"scheduler", "type", IS_LATER, NULL},
    {"scheduler", "params", IS_CONTAINER, NULL},
    {"scheduler.params", "warmup_min_lr warmup_min_ratio", IS_ONLY, "0"},
    {"scheduler.params", "warmup_max_lr warmup_type total_num_steps cos_min_ratio", IS_LATER, NULL},
    {"scheduler.params", "warmup_num_steps", IS_OURS, "warmup"},
    {"scheduler.params", "last_batch_iteration", IS_ONLY, "-1"},
    {"zero_optimization", "stage overlap_comm reduce_bucket_size", IS_LATER, NULL},
    {"zero_optimization", "offload_optimizer offload_param", IS_CONTAINER, NULL},
    {"zero_optimization.offload_optimizer", "device", IS_LATER, NULL},
    {"zero_optimization.offload_optimizer",
     "pin_memory buffer_count fast_init pipeline_read pipeline_write", IS_TIME, NULL},
    {"zero_optimization.offload_optimizer", "ratio", IS_ONLY, "1"},
    {"zero_optimization.offload_optimizer", "nvme_path", IS_SAID,
     "files are made in the folder of --out"},
    {"zero_optimization.offload_param", "nvme_path", IS_SAID,
     "files are made in the folder of --out"},
    {"zero_optimization.offload_param", "device", IS_LATER, NULL},
    {"zero_optimization.offload_param", "pin_memory buffer_count buffer_size max_in_cpu", IS_TIME,
     NULL},
    {"zero_optimization",
     "contiguous_gradients reduce_scatter allgather_partitions allgather_bucket_size "
     "round_robin_gradients sub_group_size stage3_max_live_parameters stage3_max_reuse_distance "
     "stage3_prefetch_bucket_size stage3_param_persistence_threshold "
     "stage3_gather_16bit_weights_on_model_save ignore_unused_parameters",
     IS_TIME, NULL},
    {"fp16", "enabled", IS_ONLY, "false"},
    /* Parameters of a disabled feature. */
    {"fp16", "loss_scale loss_scale_window initial_scale_power hysteresis min_loss_scale auto_cast",
     IS_TIME, NULL},
    {"bf16", "enabled", IS_LATER, NULL},
    {"amp", "enabled", IS_ONLY, "false"},
    {"", "prescale_gradients sparse_gradients", IS_ONLY, "false"},
    {"", "gradient_predivide_factor", IS_ONLY, "1"},
    {"", "communication_data_type", IS_ONLY, "fp32"},
    {"",
     "steps_per_print wall_clock_breakdown memory_breakdown dump_state "
     "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer aio flops_profiler comms_logger "
     "tensorboard",
     IS_TIME, NULL},
    {"", "pipeline", IS_SAID, "set stages by --plan pp=N"},
    {"", "tensor_parallel", IS_SAID, "set it by --plan tp=N"},
    {"", "activation_checkpointing", IS_SAID, "set it by --plan recompute=all"},
};
#define N_ROWS (sizeof rows / sizeof *rows)

typedef struct reading {
    options *o;
    const options *typed;
    const json_t *root;
    const char *where;
    json_t *ours; /* the options found so far */
    bool good;
} reading;

static void fail(reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(reading *r, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->good) options_fail(r->o, "%.150s: %s", r->where, text);
    r->good = false;
}

/* Hugging Face's word for a value from the command line. */
static bool is_auto(const json_t *value) {
    return json_is_string(value) && !strcmp(json_string_value(value), "auto");
}

/* The value at the end of the path; NULL. */
static const json_t *member_at(const reading *r, const char *path) {
    const json_t *at = r->root;
    for (const char *word = path; at && *word;) {
        char key[TEXT_BYTES];
        size_t n = strcspn(word, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, word);
        at = json_object_get(at, key);
        word += n + (word[n] == '.');
    }
    return at;
}

/* The same, unless the command line is to say it. */
static const json_t *find(const reading *r, const char *path) {
    const json_t *at = member_at(r, path);
    return is_auto(at) ? NULL : at;
}

static void want_member(reading *r, const char *path) {
    if (!member_at(r, path)) fail(r, "%s is missing", path);
}

static void set(reading *r, const char *key, json_t *value) {
    if (!value || json_object_set_new(r->ours, key, value)) fail(r, "no memory left");
}

static void set_value(reading *r, const char *key, const json_t *value) {
    if (value) set(r, key, json_incref((json_t *)value));
}

/* A number as it was written, so that 1 is 1.0. */
static bool is_only(const json_t *value, const char *only) {
    json_t *want = json_loads(only, JSON_DECODE_ANY, NULL);
    bool is = want ? json_is_number(want) && json_is_number(value)
                         ? json_number_value(want) == json_number_value(value)
                         : json_equal(want, value)
                   : json_is_string(value) && !strcmp(json_string_value(value), only);
    json_decref(want);
    return is;
}

static bool names(const struct row *row, const char *of, const char *key) {
    size_t n = strcspn(key, " ");
    if (!n || key[n] || strcmp(row->of, of)) return false;
    for (const char *at = row->members; (at = strstr(at, key)); at += n)
        if ((at == row->members || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* Every member of `at` has a row, and options of single members go into r->ours. */
static void read_members(reading *r, const json_t *at, const char *path) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at, key, value) {
        char name[200];
        size_t k = 0;
        snprintf(name, sizeof name, "%s%s%.100s", path, *path ? "." : "", key);
        while (k < N_ROWS && !names(&rows[k], path, key)) k++;
        if (text_has_control(key)) fail(r, "a name holds a control character");
        if (k == N_ROWS) fail(r, "%s: weft has no counterpart", name);
        if (!r->good) return;
        if (rows[k].meaning == IS_SAID) fail(r, "%s is not read; %s", name, rows[k].ours);
        if (is_auto(value)) continue;
        if (rows[k].meaning == IS_CONTAINER && json_is_object(value))
            read_members(r, value, name);
        else if (rows[k].meaning == IS_CONTAINER)
            fail(r, "%s is not an object", name);
        else if (rows[k].meaning == IS_OURS)
            set_value(r, rows[k].ours, value);
        else if (rows[k].meaning == IS_ONLY && !is_only(value, rows[k].ours))
            fail(r, "%s: weft supports only %s%s", name, rows[k].ours,
                 !strcmp(name, "fp16.enabled") ? "; the 16-bit type is bf16: bf16.enabled" : "");
    }
}

/* ---- options made from several members ---- */

/* `fallback` where there is none; anything but a whole number of at least `least` is refused. */
static int64_t count_of(reading *r, const char *path, int64_t least, int64_t fallback) {
    const json_t *value = find(r, path);
    if (!value) return fallback;
    double n = json_number_value(value); /* some write 5e8 */
    if (!json_is_number(value) || n < (double)least || n > 1 << 30 || n != (double)(int64_t)n)
        fail(r, "%s: it must be a whole number from %lld to 2^30", path, (long long)least);
    return r->good ? (int64_t)n : least;
}

static bool flag_of(reading *r, const char *path, bool fallback) {
    const json_t *value = find(r, path);
    if (value && !json_is_boolean(value)) fail(r, "%s must be true or false", path);
    return value ? json_is_true(value) : fallback;
}

/* Place of the text in a list that ends with NULL; -1: there is none. */
static int choice_of(reading *r, const char *path, const char *const *names) {
    const json_t *value = find(r, path);
    const char *text = json_string_value(value);
    if (!value) return -1;
    for (int k = 0; text && names[k]; k++)
        if (!strcasecmp(text, names[k])) return k;
    fail(r, "%s: weft has no '%.40s', but %s%s%s%s%s", path,
         text && !text_has_control(text) ? text : "", names[0], names[1] ? ", " : "",
         names[1] ? names[1] : "", names[1] && names[2] ? ", " : "",
         names[1] && names[2] ? names[2] : "");
    return -1;
}

/* A typed plan sets the number of replicas, for any division of its ranks; without one each rank is
 * one: those that were typed, or that a launcher's variables tell of. */
static wf_status read_replicas(const options *typed, wf_context *ctx, int *n_out) {
    wf_place place;
    wf_plan *plan;
    wf_status status = WF_OK;
    *n_out = (int)typed->ranks;
    if (*typed->plan && strcmp(typed->plan, "auto")) {
        status = wf_plan_parse(ctx, typed->plan, &plan);
        if (status != WF_OK) return status;
        *n_out = wf_plan_dp(plan);
        wf_plan_destroy(plan);
    } else if (*n_out <= 1 && typed->devices) {
        status = wf_devices_count(ctx, typed->devices, n_out);
    } else if (*n_out <= 1) {
        status = wf_launch_place(ctx, &place);
        if (status == WF_OK) *n_out = place.n_ranks;
    }
    return status;
}

static int count_replicas(reading *r) {
    wf_context *ctx;
    int n = 1;
    if (wf_context_create(NULL, &ctx) != WF_OK) {
        fail(r, "no memory left");
        return 1;
    }
    if (read_replicas(r->typed, ctx, &n) != WF_OK) fail(r, "%.300s", wf_context_error(ctx));
    wf_context_destroy(ctx);
    return n;
}

/* batch = samples of a replica's microbatch x microbatches of a replica x replicas; each may follow
 * from the others. */
static void read_batch(reading *r, int n_replicas) {
    int64_t batch = count_of(r, "train_batch_size", 1, 0),
            samples = count_of(r, "train_micro_batch_size_per_gpu", 1, 0),
            steps = count_of(r, "gradient_accumulation_steps", 1, 0);
    if (n_replicas > 1 && !strcmp(r->typed->plan, "auto")) {
        if (samples || steps)
            fail(r, "the number of replicas of --plan auto is not known yet: give the plan, or "
                    "only train_batch_size");
        if (batch) set(r, "batch", json_integer(batch));
        return;
    }
    bool is_open = !samples && !steps; /* microbatches are the recipe's own */
    if (!batch && !samples) {
        if (steps > 1) set(r, "micro", json_integer(steps * n_replicas));
        return;
    }
    if (!batch) batch = samples * (steps ? steps : 1) * n_replicas;
    if (!steps) steps = samples ? batch / samples / n_replicas : 1;
    if (!samples) samples = batch / steps / n_replicas;
    if (samples * steps * n_replicas != batch)
        fail(r,
             "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld x "
             "gradient_accumulation_steps %lld x %d replicas",
             (long long)batch, (long long)samples, (long long)steps, n_replicas);
    set(r, "batch", json_integer(batch));
    if (!is_open) set(r, "micro", json_integer(steps * n_replicas));
}

/* DeepSpeed's Adam is AdamW unless it is told otherwise, and decays nothing by default. */
static void read_optimizer(reading *r) {
    static const char *const types[] = {"Adam", "AdamW", "SGD", NULL};
    const json_t *betas = find(r, "optimizer.params.betas"),
                 *decay = find(r, "optimizer.params.weight_decay"),
                 *lr = find(r, "optimizer.params.lr");
    int type = choice_of(r, "optimizer.type", types);
    bool is_decoupled = flag_of(r, "optimizer.params.adam_w_mode", true);
    if (type < 0) {
        if (find(r, "optimizer")) fail(r, "optimizer.type is missing");
        return;
    }
    if (type == 2 && !lr && !find(r, "scheduler.params.warmup_max_lr"))
        fail(r, "optimizer.params.lr is missing");
    set(r, "optimizer",
        json_string(type == 2                   ? "sgd"
                    : type == 1 || is_decoupled ? "adamw"
                                                : "adam"));
    set_value(r, "lr", lr);
    if (!decay)
        set(r, "weight_decay", json_integer(0));
    else
        set_value(r, "weight_decay", decay);
    if (betas && json_array_size(betas) != 2) fail(r, "optimizer.params.betas must be two numbers");
    if (!betas) return;
    set_value(r, "beta1", json_array_get(betas, 0));
    set_value(r, "beta2", json_array_get(betas, 1));
}

static void read_schedule(reading *r) {
    static const char *const types[] = {"WarmupLR", "WarmupCosineLR", NULL};
    static const char *const rises[] = {"linear", "log", NULL};
    int type = choice_of(r, "scheduler.type", types);
    if (type < 0) {
        if (find(r, "scheduler")) fail(r, "scheduler.type is missing");
        return;
    }
    want_member(r, "scheduler.params.warmup_num_steps"); /* by default 1000; weft's is 0 */
    /* DeepSpeed's default is a logarithmic warm-up that does not end at zero. */
    int rise = choice_of(r, "scheduler.params.warmup_type", rises);
    if (json_number_value(find(r, "scheduler.params.warmup_num_steps")) > 0 ||
        r->typed->recipe.warmup_steps)
        set(r, "warmup_shape", json_string(rises[rise < 0 ? 1 : rise]));
    if (type == 0) {
        set_value(r, "lr", find(r, "scheduler.params.warmup_max_lr"));
        want_member(r, "scheduler.params.warmup_max_lr");
        return;
    }
    const json_t *least = find(r, "scheduler.params.cos_min_ratio");
    if (!least || json_number_value(least) != 0)
        fail(r, "scheduler.params.cos_min_ratio: weft's cosine ends at 0");
    set(r, "lr_schedule", json_string("cosine"));
    int64_t n_steps = count_of(r, "scheduler.params.total_num_steps", 1, 0);
    if (n_steps) set(r, "lr_step", json_integer(n_steps));
    want_member(r, "scheduler.params.total_num_steps");
}

static void read_plan(reading *r, int n_replicas) {
    static const char *const places[] = {"none", "cpu", "nvme", NULL};
    static const char *const suffixes[] = {"", "", ":disk"};
    int64_t stage = count_of(r, "zero_optimization.stage", 0, 0),
            bucket = count_of(r, "zero_optimization.reduce_bucket_size", 1, 0);
    int state = choice_of(r, "zero_optimization.offload_optimizer.device", places),
        params = choice_of(r, "zero_optimization.offload_param.device", places);
    const json_t *overlaps = find(r, "zero_optimization.overlap_comm");
    char plan[200], zero[20] = "", offload[60] = "", other[60] = "";
    if (stage > 3) fail(r, "zero_optimization.stage must be 0 to 3");
    /* One replica divides nothing. */
    if (stage && n_replicas > 1) snprintf(zero, sizeof zero, ",zero=%d", (int)stage);
    if (state > 0 || params > 0)
        snprintf(offload, sizeof offload, ",offload=%s%s%s%s%s", state > 0 ? "state" : "",
                 state > 0 ? suffixes[state] : "", state > 0 && params > 0 ? "+" : "",
                 params > 0 ? "params" : "", params > 0 ? suffixes[params] : "");
    if (n_replicas > 1 && bucket) /* theirs are elements, of which ours have four bytes */
        snprintf(other, sizeof other, ",bucket=%lld", (long long)bucket * 4);
    if (n_replicas > 1 && overlaps)
        strcat(other,
               flag_of(r, "zero_optimization.overlap_comm", true) ? ",overlap=on" : ",overlap=off");
    snprintf(plan, sizeof plan, "dp=%d%s%s%s", n_replicas, zero, offload, other);
    set(r, "plan", json_string(plan));
}

json_t *deepspeed_options(options *o, const json_t *root, const options *typed) {
    reading r = {.o = o,
                 .typed = typed,
                 .root = root,
                 .where = typed->deepspeed,
                 .ours = json_object(),
                 .good = true};
    read_members(&r, root, "");
    int n_replicas = r.good ? count_replicas(&r) : 1;
    if (r.good) read_batch(&r, n_replicas);
    if (r.good) read_optimizer(&r);
    if (r.good) read_schedule(&r);
    if (r.good && flag_of(&r, "bf16.enabled", false)) set(&r, "dtype", json_string("bf16"));
    if (r.good) read_plan(&r, n_replicas);
    if (r.good) return r.ours;
    json_decref(r.ours);
    return NULL;
}

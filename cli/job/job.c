/* From options to data, model, plan and recipe. */
#include "common/text.h"
#include "job/agree.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Synthetic training samples: whole batches, at least so many. */
#define N_SYNTHETIC 3840

/* Below this an ImageNet stem and four stages leave nothing of an image. */
#define SMALL_IMAGE 16

exit_status job_check_model(const cli *c) {
    const options *o = &c->o;
    if (!o->model) return complain(EXIT_USAGE, "--model is missing, for example --model resnet18");
    if (wf_model_registry_find(o->model)) return EXIT_DONE;
    wf_model *none;
    return complain_of(c, wf_model_find(c->ctx, o->model, NULL, &none));
}

static exit_status check_use(const options *o) {
    if (!(o->mixup >= 0 && o->mixup <= WF_MAX_MIXUP))
        return complain(EXIT_USAGE, "--mixup is %g, but must be 0 to %d", o->mixup, WF_MAX_MIXUP);
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char name[TEXT_BYTES];
        const char *why = option_is_given(o, id) ? option_no_use(o, id) : NULL;
        if (why)
            return complain(EXIT_USAGE, "%s has no effect here: %s", option_name(name, id), why);
    }
    return EXIT_DONE;
}

void job_take_sizes(const options *o, wf_model_config *config) {
    config->n_layers = o->layers;
    config->hidden = o->hidden;
    config->n_heads = o->heads;
    config->embedding = o->embedding;
    config->tied = o->tied;
    config->n_kv_heads = o->kv_heads;
    config->ffn = o->ffn;
    if (wf_model_registry_find(o->model)->is_gated) config->rope_theta = o->rope_theta;
}

/* Sets sizes that were not given, and checks that no other is 0. */
static exit_status resolve_sizes(options *o, const wf_model_info *model) {
    const struct {
        option_id id;
        int64_t *value, usual;
    } sizes[] = {{OPT_layers, &o->layers, model->n_layers},
                 {OPT_hidden, &o->hidden, model->hidden},
                 {OPT_embedding, &o->embedding, 0}, /* as wide as the hidden layer */
                 {OPT_heads, &o->heads, 0},         /* by the width */
                 {OPT_ffn, &o->ffn, 0},
                 {OPT_kv_heads, &o->kv_heads, 0}, /* as many as heads */
                 {OPT_vocab, &o->vocab, 0}};      /* by the data */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && model->has_sizes; k++) {
        char name[TEXT_BYTES];
        if (!option_is_given(o, sizes[k].id)) {
            if (!*sizes[k].value) *sizes[k].value = sizes[k].usual; /* else saved weights say it */
        } else if (!*sizes[k].value)
            return complain(EXIT_USAGE, "%s must be at least 1", option_name(name, sizes[k].id));
    }
    if (model->is_recurrent && !o->embedding) o->embedding = o->hidden;
    if (!(o->rope_theta > 0))
        return complain(EXIT_USAGE, "--rope-theta is %g, but must be above 0", o->rope_theta);
    return EXIT_DONE;
}

static void resolve_options(options *o, const wf_model_info *model, bool wants_mse) {
    if (!o->image) o->image = o->has_pictures && model->has_stem ? 224 : model->image;
    if (!o->tokens) o->tokens = model->n_tokens;
    if (!option_is_given(o, OPT_loss) && wants_mse && !model->takes_tokens) o->loss = WF_LOSS_MSE;
    bool sgd = o->recipe.optimizer == WF_SGD;
    if (!option_is_given(o, OPT_lr)) o->recipe.lr = sgd ? 0.1 : 0.001;
    if (!option_is_given(o, OPT_weight_decay))
        o->recipe.weight_decay = o->recipe.optimizer == WF_ADAMW ? 0.01 : 0;
}

/* A benchmark sees each sample once. */
static int64_t synthetic_samples(const options *o, int64_t n_steps) {
    int64_t batch = o->recipe.batch > 0 && o->recipe.batch < 1 << 24 ? o->recipe.batch : 1;
    int64_t n_batches = (N_SYNTHETIC + batch - 1) / batch;
    if (n_steps > n_batches && n_steps < 1 << 20) n_batches = n_steps;
    return batch * n_batches;
}

/* The limit on the memory of decoded pictures. */
static size_t cache_bytes(const cli *c) {
    size_t most = wf_info_limits().memory_bytes,
           n_ranks = c->job ? (size_t)wf_job_n_ranks(c->job) : 1;
    if (c->o.cache) return c->o.cache;
    if (!most) most = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return most / 4 / n_ranks;
}

static wf_status open_data(job *j, bool is_synthetic, int64_t n_steps) {
    const options *o = &j->c->o;
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = o->data;
    config.format = (wf_data_format)o->data_format;
    config.kind = j->is_tokens ? WF_DATA_TOKENS : WF_DATA_IMAGES;
    config.height = config.width = o->image;
    config.resized = o->resize;
    if (j->is_tokens) config.n_classes = o->vocab ? o->vocab : j->saved.vocab;
    if (is_synthetic && !o->vocab) config.n_classes = wf_model_registry_find(o->model)->n_classes;
    config.n_tokens = o->tokens;
    config.n_synthetic = synthetic_samples(o, n_steps);
    job_find_streams(j, config.n_streams);
    config.targets = o->loss == WF_LOSS_MSE ? WF_TARGETS_ONE_HOT : WF_TARGETS_LABELS;
    config.text = o->words ? WF_TEXT_WORDS : WF_TEXT_BYTES;
    config.normalize = (wf_data_normalize)o->normalize;
    config.seed = o->recipe.seed;
    config.tokenizer = j->tokenizer;
    config.skip_broken = o->skip_broken;
    config.cache_bytes = cache_bytes(j->c);
    config.unlabelled = j->c->command == FOR_PREDICT;
    if (config.unlabelled) config.n_classes = j->saved.images.n_classes;
    if (!is_synthetic) about_prepare(j->c, &j->saved, &config);
    wf_status status = wf_data_open(j->c->ctx, &config, &j->data);
    if (status == WF_OK) j->about = *wf_data_describe(j->data);
    return status;
}

/* The vocabulary must contain the data's tokens, and may be larger. */
static exit_status check_vocab(job *j) {
    options *o = &j->c->o;
    if (option_no_use(o, OPT_vocab)) return EXIT_DONE;
    if (!o->vocab) o->vocab = j->about.n_classes;
    if (o->vocab >= j->about.n_classes) return EXIT_DONE;
    return complain(EXIT_USAGE, "--vocab %lld: the data has %lld different tokens",
                    (long long)o->vocab, (long long)j->about.n_classes);
}

/* Sizes that the model chose are recorded, so that a resumed run finds them. */
static void keep_sizes(options *o, const wf_model *model) {
    const wf_model_config *config = wf_model_config_of(model);
    o->heads = config->n_heads;
    if (!wf_model_registry_find(o->model)->is_gated) return;
    o->ffn = config->ffn;
    o->kv_heads = config->n_kv_heads;
}

static wf_status find_model(job *j) {
    options *o = &j->c->o;
    const wf_data_description *about = &j->about;
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    config.n_classes = about->n_classes;
    config.label_smoothing = o->label_smoothing;
    if (j->is_tokens) {
        config.n_tokens = about->n_tokens;
        config.dropout = o->dropout;
        job_take_sizes(o, &config);
        about_take_properties(&j->saved, &config);
        if (j->saved.vocab > config.n_classes) config.n_classes = j->saved.vocab;
        if (wf_model_registry_find(o->model)->has_sizes) config.n_positions = j->saved.positions;
        if (!option_no_use(o, OPT_vocab)) config.n_classes = o->vocab;
    } else {
        config.channels = about->channels;
        config.height = about->height;
        config.width = about->width;
        config.loss = (wf_loss_kind)o->loss;
        config.mixup = o->mixup > 0;
        if (!option_no_use(o, OPT_stem)) {
            if (o->stem == STEM_AUTO)
                o->stem = about->width < SMALL_IMAGE ? STEM_SMALL : STEM_IMAGENET;
            config.small_stem = o->stem == STEM_SMALL;
        }
    }
    wf_status status = wf_model_find(j->c->ctx, o->model, &config, &j->model);
    if (status == WF_OK && j->is_tokens) keep_sizes(o, j->model);
    return status;
}

wf_status job_resolve(const job *j, wf_recipe *recipe) {
    wf_context *ctx = j->c->ctx;
    int n_cores = wf_info_limits().n_cores, n_ranks = wf_plan_n_ranks(j->plan);
    if (j->c->command & (FOR_EVAL | FOR_PREDICT)) { /* replicas need no lanes, but share cores */
        if (!recipe->n_threads) recipe->n_threads = n_cores > n_ranks ? n_cores / n_ranks : 1;
        return wf_recipe_resolve(ctx, recipe, j->model, NULL, recipe);
    }
    return j->c->command == FOR_PLAN ? wf_recipe_resolve_for(ctx, recipe, j->model, j->plan, recipe)
                                     : wf_recipe_resolve(ctx, recipe, j->model, j->plan, recipe);
}

/* Which fields of the recipe follow the plan that is only looked at. By default there are as many
 * microbatches as lanes; the default of lanes depends on microbatches that are given. */
static wf_status note_needed(job *j) {
    const options *o = &j->c->o;
    const wf_recipe *r = &o->recipe;
    wf_recipe own = *r;
    if (j->c->command != FOR_PLAN) return WF_OK;
    bool has_micro = option_is_given(o, OPT_n_micro), needs_micro = r->n_micro != r->n_lanes;
    if (!has_micro && !needs_micro) own.n_micro = 0;
    if (!option_is_given(o, OPT_n_lanes)) own.n_lanes = 0;
    if (!option_is_given(o, OPT_n_slices)) own.n_slices = 0;
    wf_status status = wf_recipe_resolve(j->c->ctx, &own, j->model, NULL, &own);
    j->needed.n_micro = has_micro || !needs_micro ? 0 : r->n_micro;
    j->needed.n_lanes = r->n_lanes == own.n_lanes ? 0 : r->n_lanes;
    j->needed.n_slices = r->n_slices == own.n_slices ? 0 : r->n_slices;
    return status;
}

/* Resolves the number of steps, the end of a schedule, and the rest of the recipe. */
wf_status job_resolve_steps(job *j, int64_t n_steps) {
    options *o = &j->c->o;
    wf_recipe *r = &o->recipe;
    int64_t batch = r->batch > 0 ? r->batch : 1; /* else the resolving below refuses */
    int64_t n_full = j->about.n_train / batch;
    bool is_steps = option_is_given(o, OPT_steps);
    j->n_epoch = n_full + (j->about.n_train % batch != 0);
    j->n_steps = n_steps >= 0 ? n_steps
                 : is_steps   ? o->steps
                              : (o->epochs ? o->epochs : 1) * j->n_epoch;
    /* Few pictures are no reason to compute with many. */
    if (j->c->command == FOR_PREDICT && !option_is_given(o, OPT_batch))
        r->batch = j->about.n_test < 1 ? 1 : j->about.n_test < 32 ? j->about.n_test : 32;
    bool is_open = r->lr_schedule == WF_LR_COSINE && !r->schedule_steps;
    if (is_open) r->schedule_steps = 1; /* for now: how many steps there are is not known yet */
    TRY(job_resolve(j, r));
    TRY(note_needed(j));
    int64_t n_rest = j->about.n_train % r->batch;
    if (n_full && n_rest && n_rest < r->n_micro) {
        j->drop_last = true;
        j->n_epoch = n_full;
        if (n_steps < 0 && !is_steps) j->n_steps = (o->epochs ? o->epochs : 1) * j->n_epoch;
    }
    if (is_open) r->schedule_steps = j->n_steps > 0 ? j->n_steps : 1;
    return WF_OK;
}

static bool plan_is_auto(const options *o) {
    return o->plan && !strcmp(o->plan, "auto");
}

/* Without a plan each rank is a replica; with --plan auto, until the plan is chosen. */
static wf_status parse_plan(job *j) {
    const options *o = &j->c->o;
    int n_ranks = j->c->job ? wf_job_n_ranks(j->c->job) : (int)o->ranks;
    char text[TEXT_BYTES];
    bool is_open = !*o->plan && j->c->command & TPBEP;
    if (!is_open && !plan_is_auto(o)) return wf_plan_parse(j->c->ctx, o->plan, &j->plan);
    if (o->devices) {
        TRY(wf_devices_count(j->c->ctx, o->devices, &n_ranks));
    }
    snprintf(text, sizeof text, "dp=%d", n_ranks);
    j->is_default_plan = is_open && n_ranks > 1;
    return wf_plan_parse(j->c->ctx, text, &j->plan);
}

wf_status job_use_devices(const cli *c, wf_plan *plan) {
    bool runs = c->job && !(c->command & FOR_PLAN);
    wf_plan_use_memory(plan, c->o.device_memory);
    wf_status status = wf_plan_use_wire(plan, runs ? wf_job_wire(c->job) : c->o.wire);
    return status == WF_OK ? wf_plan_use_devices(plan, c->o.devices) : status;
}

/* weft predict reads pictures of any folder, unless the data is a set of another format. */
static bool reads_pictures(const cli *c) {
    const char *data = c->o.data;
    wf_data_format format = wf_data_find_format(data, (wf_data_format)c->o.data_format);
    bool is_named = !strcmp(data, "synthetic") || !strcmp(data, "fashion-mnist");
    bool is_plain = c->command == FOR_PREDICT && format != WF_FORMAT_MNIST &&
                    format != WF_FORMAT_CIFAR && !is_named;
    return is_plain || format == WF_FORMAT_IMAGES;
}

/* Sets the memory limit from the free memory of GPUs; also returns whether that is known. */
static exit_status cap_of_devices(cli *c, bool *is_known_out) {
    char text[TEXT_BYTES];
    *is_known_out = false;
    if (!c->o.devices || c->job) return EXIT_DONE;
    TRY(complain_of(c, wf_devices_memory(c->ctx, c->o.devices, &c->o.device_memory)));
    *is_known_out = c->o.device_memory;
    if (*is_known_out && c->command != FOR_GENERATE) /* which prints its text alone */
        snprintf(c->memory_cap, sizeof c->memory_cap,
                 "%s a rank at most: what its device has free, or its part of that",
                 text_of_bytes(text, (double)c->o.device_memory));
    return EXIT_DONE;
}

/* Ranks of a job take rank 0's. */
exit_status job_cap_memory(cli *c, const wf_plan *plan) {
    int n_ranks = wf_plan_n_ranks(plan), n_here = c->job ? wf_job_n_local_ranks(c->job) : n_ranks;
    char text[TEXT_BYTES], all[TEXT_BYTES], *told = NULL;
    size_t limit = wf_info_limits().memory_bytes;
    if (c->o.device_memory || c->command & (FOR_PLAN | FOR_ADVISE) || n_here != n_ranks)
        return EXIT_DONE;
    bool is_known;
    exit_status bad = cap_of_devices(c, &is_known);
    if (bad || is_known) return bad;
    if (c->is_root && asprintf(&told, "%zu", limit) < 0)
        return complain(EXIT_FAILED, "no memory left");
    bad = agree_on_text(c, EXIT_DONE, &told);
    limit = bad ? 0 : strtoull(told, NULL, 10);
    free(told);
    if (!limit) return bad;
    c->o.device_memory = limit / (size_t)n_ranks;
    snprintf(c->memory_cap, sizeof c->memory_cap,
             "%s a rank at most: the control group may have %s",
             text_of_bytes(text, (double)c->o.device_memory), text_of_bytes(all, (double)limit));
    return EXIT_DONE;
}

void job_say_cap(const cli *c) {
    if (*c->memory_cap) say(c, "memory  %s\n", c->memory_cap);
}

/* Resolves the options without reading data. */
static exit_status resolve(job *j) {
    options *o = &j->c->o;
    o->has_pictures = o->data && reads_pictures(j->c);
    TRY(about_read(j->c, &j->saved));
    TRY(job_check_model(j->c));
    if (!o->data && j->c->command & (FOR_TRAIN | FOR_EVAL | FOR_PREDICT))
        return complain(EXIT_USAGE, "--data is missing, for example --data fashion-mnist");
    if (!o->data && !option_set(o, OPT_data, "synthetic"))
        return complain(EXIT_FAILED, "%s", o->error);
    TRY(check_use(o));
    if (option_is_given(o, OPT_steps) && option_is_given(o, OPT_epochs))
        return complain(EXIT_USAGE, "--steps and --epochs both say when to stop; give one");
    if (option_is_given(o, OPT_epochs) && !o->epochs)
        return complain(EXIT_USAGE, "--epochs must be at least 1");
    if (o->recipe.lr_schedule == WF_LR_STEP && !o->recipe.schedule_steps)
        return complain(EXIT_USAGE, "--lr-schedule step needs --lr-step N: how often it falls");
    bool is_synthetic = !strcmp(o->data, "synthetic");
    const wf_model_info *model = wf_model_registry_find(o->model);
    j->is_tokens = model->takes_tokens;
    j->is_recurrent = model->is_recurrent;
    TRY(resolve_sizes(o, model));
    if (!o->tokens) o->tokens = j->saved.tokens;
    if (!o->tokens && j->saved.positions && j->saved.positions < model->n_tokens)
        o->tokens = j->saved.positions;
    resolve_options(o, model, j->c->command & (FOR_BENCH | FOR_TUNE) && is_synthetic);
    if (o->loss == WF_LOSS_MSE && !is_synthetic)
        return complain(EXIT_USAGE,
                        "--loss mse wants one-hot targets; only --data synthetic has them");
    return EXIT_DONE;
}

/* Opens the data; its tokens must be those of the saved weights. */
static exit_status open_known_data(job *j, int64_t n_steps) {
    const options *o = &j->c->o;
    bool is_synthetic = !strcmp(o->data, "synthetic");
    bool is_text = o->data_format == WF_FORMAT_AUTO || o->data_format == WF_FORMAT_TEXT;
    if (j->is_tokens && is_text && !is_synthetic)
        TRY(about_tokenizer(j->c, &j->saved, &j->tokenizer));
    TRY(complain_of(j->c, open_data(j, is_synthetic, n_steps)));
    j->c->o.resize = j->about.resized;
    if (o->epochs > INT64_MAX / (j->about.n_train + 1))
        return complain(EXIT_USAGE, "--epochs %lld: too many steps to count", (long long)o->epochs);
    TRY(agree_on_data(j));
    TRY(about_check(j->c, &j->saved, wf_data_tokenizer(j->data)));
    if (!j->is_tokens) TRY(about_check_images(j->c, &j->saved, j->data));
    return check_vocab(j);
}

static exit_status open_job(job *j, int64_t n_steps) {
    const options *o = &j->c->o;
    TRY(resolve(j));
    TRY(complain_of(j->c, parse_plan(j)));
    TRY(job_open_cluster(j));
    TRY(job_cap_memory(j->c, j->plan));
    TRY(complain_of(j->c, job_use_devices(j->c, j->plan)));
    TRY(open_known_data(j, n_steps));
    wf_status status = find_model(j);
    if (status == WF_OK && j->c->command == FOR_ADVISE) return EXIT_DONE;
    if (status == WF_OK && plan_is_auto(o))
        status = j->cluster ? job_choose_on_cluster(j) : job_choose_plan(j);
    if (status == WF_OK && !(j->c->command & (FOR_EVAL | FOR_PREDICT))) TRY(job_measure(j));
    if (status == WF_OK) status = job_resolve_steps(j, n_steps);
    wf_program *none = NULL;
    if (status != WF_OK) (void)job_take_another(j, &status, &none);
    return job_complain_of_plan(j, status);
}

exit_status job_open(cli *c, int64_t n_steps, job *j) {
    memset(j, 0, sizeof *j);
    j->c = c;
    exit_status bad = open_job(j, n_steps);
    if (bad) job_close(j);
    return bad;
}

void job_close(job *j) {
    wf_model_destroy(j->model);
    wf_plan_destroy(j->plan);
    wf_cluster_destroy(j->cluster);
    job_end_list(j);
    if (j->would_fit) wf_proposals_destroy(j->c->ctx, j->would_fit, j->n_would_fit);
    wf_data_close(j->data);
    wf_tokenizer_destroy(j->tokenizer);
    about_release(&j->saved);
    memset(j, 0, sizeof *j);
}

wf_status job_hash_data(job *j) {
    return *j->data_hash ? WF_OK : wf_data_hash(j->data, j->data_hash);
}

double job_items(const job *j, int64_t n_samples) {
    return (double)n_samples * (j->is_tokens ? (double)j->about.n_tokens : 1);
}

/* Values of options: from text, to text, and which of them mean something together. */
#include "common/options.h"
#include "common/text.h"
#include "common/tuned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_INT (1 << 20)

static void *field_of(options *o, option_id id) {
    return (char *)o + option_about(id).offset;
}

static const void *value_of(const options *o, option_id id) {
    return (const char *)o + option_about(id).offset;
}

/* Place of `text` in "a|b|c"; -1. */
static int choice_find(const char *list, const char *text) {
    size_t n = strlen(text);
    for (int i = 0;; i++) {
        size_t length = strcspn(list, "|");
        if (length == n && !strncmp(list, text, n)) return i;
        if (!list[length]) return -1;
        list += length + 1;
    }
}

static const char *choice_text(const char *list, int place, char *text) {
    for (; place > 0; place--) list += strcspn(list, "|") + 1;
    snprintf(text, TEXT_BYTES, "%.*s", (int)strcspn(list, "|"), list);
    return text;
}

/* Other programs' name of a value; "" if it is not known. */
static const char *choice_hint(option_id id, const char *value) {
    static const struct {
        const char *theirs, *ours;
    } types[] = {{"float32", "; here it is f32"}, {"fp32", "; here it is f32"},
                 {"float", "; here it is f32"},   {"bfloat16", "; here it is bf16"},
                 {"float16", "; here it is f16"}, {"fp16", "; here it is f16"},
                 {"half", "; here it is f16"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if ((id != OPT_dtype && id != OPT_file_dtype) || strcasecmp(value, types[i].theirs))
            continue;
        bool is_f16 = strstr(types[i].ours, " f16");
        return is_f16 && id == OPT_dtype ? "; the 16-bit type is bf16" : types[i].ours;
    }
    return "";
}

static bool set_text(options *o, option_id id, const char *value) {
    /* Words are typed with - or _, as options are. */
    if (id == OPT_data && !strcmp(value, "fashion_mnist")) value = "fashion-mnist";
    char **field = field_of(o, id), *copy = strdup(value);
    if (!copy) return options_fail(o, "no memory left");
    free(*field);
    *field = copy;
    return true;
}

bool options_set_table(options *o, char *table) {
    free(o->table);
    o->recipe.tuned = o->table = table;
    return table || options_fail(o, "no memory left");
}

static bool set_names(options *o, option_id id, const char *name, const char *value) {
    char *field = field_of(o, id);
    size_t most = id == OPT_tuned ? TUNED_MOST : sizeof(wf_names) - 1;
    if (strlen(value) > most)
        return options_fail(o, "%s: names of %zu characters are more than the %zu that it takes",
                            name, strlen(value), most);
    size_t n = strlen(value);
    bool is_missing = n && (strchr(",+", *value) || strchr(",+", value[n - 1]));
    for (size_t i = 1; i < n; i++)
        is_missing |= strchr(",+", value[i]) && strchr(",+", value[i - 1]);
    if (is_missing)
        return options_fail(o, "%s: a name is missing in '%.60s'; separate names by one %s", name,
                            value, id == OPT_tuned ? "+" : "comma");
    if (id == OPT_tuned) {
        *o->tuned_for = 0; /* no file's any more */
        if (!options_set_table(o, strdup(value))) return false;
        field = o->table;
    } else {
        strcpy(field, value);
    }
    for (char *c = field; *c; c++)
        if (*c == ',') *c = '+';
    return true;
}

/* "A:B": o->ranks gets B. */
static bool set_ranks(options *o, const char *value) {
    char least[24];
    size_t n = strcspn(value, ":");
    snprintf(least, sizeof least, "%.*s", (int)n, value);
    if (!text_to_int(least, &o->ranks_least) || !text_to_int(value + n + 1, &o->ranks))
        return options_fail(o, "--ranks: '%.60s' is not a range of whole numbers such as 2:4",
                            value);
    if (o->ranks_least >= 1 && o->ranks_least <= o->ranks) return true;
    return options_fail(
        o, "--ranks %.60s: A:B is at least A ranks, from 1, and at most B, not fewer", value);
}

bool option_set(options *o, option_id id, const char *value) {
    const option about = option_about(id);
    char name[TEXT_BYTES];
    int64_t n;
    bool is_auto;
    int i;
    option_name(name, id);
    switch (about.kind) {
    case OPTION_TEXT:
        return set_text(o, id, value);
    case OPTION_NAMES:
        return set_names(o, id, name, value);
    case OPTION_FLAG:
        i = !strcmp(value, "true");
        if (!i && strcmp(value, "false"))
            return options_fail(o, "%s takes no value, but got '%.60s'", name, value);
        memcpy(field_of(o, id), &i, sizeof i);
        return true;
    case OPTION_CHOICE:
        i = choice_find(about.argument, value);
        if (id == OPT_kernels && i != WF_KERNELS_FAST && i != WF_KERNELS_REFERENCE) {
            if (!o->names_no_files) return options_read_kernels(o, value);
            i = -1;
        }
        if (i < 0)
            return options_fail(o, "%s: '%.60s' is not one of %s%s", name, value, about.argument,
                                choice_hint(id, value));
        memcpy(field_of(o, id), &i, sizeof i);
        /* This value replaces the table of a file that was named before. */
        return id != OPT_kernels || !*o->tuned_for || set_names(o, OPT_tuned, name, "");
    case OPTION_COUNT:
        if (id == OPT_ranks && strchr(value, ':')) return set_ranks(o, value);
        if (id == OPT_ranks) o->ranks_least = 0;
        n = MICRO_AUTO;
        is_auto = !strcmp(value, "auto") && strstr(about.argument, "|auto");
        if (!is_auto && (!text_to_int(value, &n) || n < 0))
            return options_fail(o, "%s: '%.60s' is %s", name, value,
                                strstr(about.argument, "|auto")
                                    ? "neither a whole number from 0 nor auto"
                                    : "not a whole number from 0, below 2^63");
        memcpy(field_of(o, id), &n, sizeof n);
        return true;
    case OPTION_INT:
        if (!text_to_int(value, &n) || n < 0 || n > MOST_INT)
            return options_fail(o, "%s: '%.60s' is not a whole number from 0 to %d", name, value,
                                MOST_INT);
        i = (int)n;
        memcpy(field_of(o, id), &i, sizeof i);
        return true;
    case OPTION_SEED:
        if (!text_to_seed(value, field_of(o, id)))
            return options_fail(o, "%s: '%.60s' is not a whole number from 0 to 2^64 - 1", name,
                                value);
        return true;
    case OPTION_REAL:
        if (!text_to_real(value, field_of(o, id)))
            return options_fail(o, "%s: '%.60s' is not a number", name, value);
        return true;
    case OPTION_SIZE:
        if (!text_to_bytes(value, field_of(o, id)))
            return options_fail(o, "%s: '%.60s' is not a size such as 2GiB, 512MB or 4096", name,
                                value);
        if (!*(const size_t *)value_of(o, id))
            return options_fail(o, "%s: '%.60s' is less than a byte", name, value);
        return true;
    }
    return false;
}

const char *option_text(const options *o, option_id id, char *text) {
    const void *value = value_of(o, id);
    int64_t n;
    int i;
    switch (option_about(id).kind) {
    case OPTION_TEXT:
        return *(char *const *)value ? *(char *const *)value : "";
    case OPTION_NAMES:
        if (id != OPT_tuned) return value;
        return o->recipe.tuned ? o->recipe.tuned : "";
    case OPTION_FLAG:
        memcpy(&i, value, sizeof i);
        return i ? "true" : "false";
    case OPTION_CHOICE:
        memcpy(&i, value, sizeof i);
        return choice_text(option_about(id).argument, i, text);
    case OPTION_INT:
        memcpy(&i, value, sizeof i);
        snprintf(text, TEXT_BYTES, "%d", i);
        return text;
    case OPTION_COUNT:
    case OPTION_SIZE:
        memcpy(&n, value, sizeof n);
        if (option_about(id).kind == OPTION_COUNT && n == MICRO_AUTO) return "auto";
        if (id == OPT_ranks && o->ranks_least) {
            snprintf(text, TEXT_BYTES, "%lld:%lld", (long long)o->ranks_least, (long long)n);
            return text;
        }
        snprintf(text, TEXT_BYTES, "%lld", (long long)n);
        return text;
    case OPTION_SEED:
        snprintf(text, TEXT_BYTES, "%" PRIu64, *(const uint64_t *)value);
        return text;
    case OPTION_REAL:
        return text_of_real(text, *(const double *)value);
    }
    return "";
}

const char *option_no_use(const options *o, option_id id) {
    const wf_model_info unknown = {0}, *found = o->model ? wf_model_registry_find(o->model) : NULL;
    const wf_model_info *model = found ? found : &unknown;
    const wf_recipe *r = &o->recipe;
    const wf_update_mode update = r->update;
    const wf_lr_schedule falls = r->lr_schedule;
    bool tokens = model->takes_tokens, sgd = r->optimizer == WF_SGD, mse = o->loss == WF_LOSS_MSE;
    bool made = o->data && !strcmp(o->data, "synthetic"), plateau = falls == WF_LR_PLATEAU;
    bool numbers = o->data_format == WF_FORMAT_TOKENS || o->data_format == WF_FORMAT_BYTES;
    bool decays =
        r->weight_decay != 0 || (r->optimizer == WF_ADAMW && !option_is_given(o, OPT_weight_decay));
    /* The first that matches; OPT_model, which is 0, has none. */
    const struct {
        option_id ids[5];
        bool is_refused;
        const char *why;
    } rules[] = {
        {{OPT_n_workers}, update == WF_UPDATE_SYNC, "--update sync has one set of parameters"},
        {{OPT_staleness, OPT_staleness_lr, OPT_n_backup, OPT_record, OPT_replay},
         update != WF_UPDATE_ASYNC,
         "it is an option of --update async"},
        {{OPT_local_steps, OPT_outer_lr, OPT_outer_momentum},
         update != WF_UPDATE_LOCAL,
         "it is an option of --update local"},
        {{OPT_proof, OPT_certificate},
         update != WF_UPDATE_SYNC,
         "workers of --update async and local have no equal ranks"},
        {{OPT_image, OPT_normalize, OPT_no_augment}, tokens, "the model reads tokens"},
        {{OPT_image}, !made && !o->has_pictures, "images have their size from the data set"},
        {{OPT_init_skip}, !o->init, "--init is not given"},
        {{OPT_resize, OPT_skip_broken, OPT_loader_threads, OPT_cache},
         !o->has_pictures,
         "--data is not a folder of pictures"},
        {{OPT_tokens, OPT_words, OPT_tokenizer}, !tokens, "the model reads images"},
        {{OPT_layers, OPT_hidden, OPT_vocab},
         !model->has_sizes,
         "only gpt, llama and lstm may have any size"},
        {{OPT_heads}, !model->has_sizes || !model->n_heads, "only gpt and llama have any number"},
        {{OPT_embedding}, !model->is_recurrent, "it is an option of --model lstm"},
        {{OPT_tied},
         !model->is_recurrent && !model->is_gated,
         "it is an option of --model lstm and llama"},
        {{OPT_ffn, OPT_kv_heads, OPT_rope_theta},
         !model->is_gated,
         "it is an option of --model llama"},
        {{OPT_no_shuffle}, model->is_recurrent, "a recurrent model reads a text in its order"},
        {{OPT_data_format}, made, "synthetic data is made, not read"},
        {{OPT_words, OPT_tokenizer}, numbers, "--data-format defines the tokens"},
        {{OPT_tokenizer}, o->words, "--words defines the tokens"},
        {{OPT_words}, made, "synthetic tokens are neither words nor bytes"},
        {{OPT_tokenizer}, made, "synthetic tokens are made, not read"},
        {{OPT_normalize}, made, "synthetic images are normal already"},
        {{OPT_no_augment}, made, "synthetic images are never augmented"},
        {{OPT_stem}, !model->has_stem, "only resnets have a stem"},
        {{OPT_loss}, tokens, "token models use cross entropy"},
        {{OPT_mixup}, tokens, "the model reads tokens, which cannot be mixed"},
        {{OPT_label_smoothing, OPT_mixup}, mse, "--loss is mse"},
        {{OPT_dropout}, !tokens || model->is_gated, "only gpt and lstm have dropout"},
        {{OPT_momentum, OPT_nesterov}, !sgd, "it is an option of --optimizer sgd"},
        {{OPT_no_bias_decay}, !decays, "--weight-decay is 0"},
        {{OPT_beta1, OPT_beta2, OPT_epsilon}, sgd, "it is an option of --optimizer adam and adamw"},
        {{OPT_schedule_steps}, plateau, "--lr-schedule is plateau"},
        {{OPT_schedule_steps}, falls == WF_LR_CONSTANT, "--lr-schedule is constant"},
        {{OPT_lr_gamma}, !plateau && falls != WF_LR_STEP, "--lr-schedule is not step"},
        {{OPT_warmup_shape}, !r->warmup_steps, "--warmup is not given"},
        {{OPT_lr_patience}, !plateau, "--lr-schedule is not plateau"},
    };
    for (size_t k = 0; id && k < sizeof rules / sizeof *rules; k++)
        for (size_t i = 0; i < 5 && rules[k].is_refused; i++)
            if (rules[k].ids[i] == id) return rules[k].why;
    return NULL;
}

bool option_is_of_recipe(const options *o, option_id id) {
    if (id == OPT_test_every) return o->recipe.lr_schedule == WF_LR_PLATEAU;
    return option_about(id).scope == OF_RECIPE;
}

static json_t *json_of(const options *o, option_id id) {
    char text[TEXT_BYTES];
    int64_t n = 0;
    switch (option_about(id).kind) {
    case OPTION_FLAG:
        return json_boolean(!strcmp(option_text(o, id, text), "true"));
    case OPTION_INT:
    case OPTION_COUNT:
    case OPTION_SIZE:
        (void)text_to_int(option_text(o, id, text), &n);
        return json_integer(n);
    case OPTION_SEED: /* as text where JSON's integers end */
        if (!text_to_int(option_text(o, id, text), &n)) break;
        return json_integer(n);
    case OPTION_REAL:
        return json_real(*(const double *)value_of(o, id));
    case OPTION_TEXT:
    case OPTION_CHOICE:
    case OPTION_NAMES:
        break;
    }
    return json_string(option_text(o, id, text));
}

json_t *options_recipe(const options *o) {
    json_t *recipe = json_object();
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (option_is_of_recipe(o, id) && !option_no_use(o, id))
            json_object_set_new(recipe, option_about(id).key, json_of(o, id));
    return recipe;
}

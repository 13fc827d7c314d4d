#include "job/about.h"
#include "common/text.h"
#include "job/agree.h"
#include "job/config_json.h"
#include "restart/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TEXT_BYTES (64 << 20) /* of words, most of all */
#define MAX_JSON_BYTES (1 << 20)

/* ---- rank 0 reads ---- */

static char *metadata_of(const wf_safetensors *file) {
    const char *text = wf_safetensors_metadata(file, ABOUT_KEY);
    return text && strlen(text) <= MAX_TEXT_BYTES ? strdup(text) : NULL;
}

void about_folder_of(const char *path, char *folder, size_t bytes) {
    char file[4096];
    const char *slash = strrchr(path, '/');
    snprintf(file, sizeof file, "%.4000s/.", path);
    if (!access(file, F_OK))
        snprintf(folder, bytes, "%s", path);
    else
        snprintf(folder, bytes, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

json_t *about_read_json(const cli *c, const char *path) {
    int fd;
    uint64_t n_bytes;
    if (access(path, F_OK) || wf_file_open(c->ctx, path, &fd, &n_bytes) != WF_OK) return NULL;
    FILE *file = n_bytes <= MAX_JSON_BYTES ? fdopen(fd, "r") : NULL;
    json_t *found = file ? json_loadf(file, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (file)
        fclose(file);
    else
        close(fd);
    return found;
}

/* Weights that say nothing of themselves: whether a language model has such tensors. */
static exit_status check_language(const char *path, const wf_safetensors *file) {
    static const char *const embeddings[] = {"wte.weight", "transformer.wte.weight",
                                             "encoder.weight"};
    for (size_t i = 0; i < sizeof embeddings / sizeof *embeddings; i++)
        if (wf_safetensors_find(file, embeddings[i]) >= 0)
            return complain(EXIT_USAGE,
                            "%s does not name its model, and there is no config.json; --model is "
                            "missing, for example --model gpt2",
                            path);
    return complain(EXIT_USAGE,
                    "%s holds a model that cannot generate text: it has neither GPT-2's wte.weight "
                    "nor the LSTM's encoder.weight",
                    path);
}

static exit_status read_text(const cli *c, const char *path, char **text_out) {
    wf_safetensors *file;
    json_t *found = NULL;
    TRY(complain_of(c, wf_safetensors_open(c->ctx, path, &file)));
    *text_out = metadata_of(file);
    exit_status bad = *text_out ? EXIT_DONE : config_json_read(c, path, &found);
    if (found && !bad) *text_out = json_dumps(found, JSON_COMPACT);
    json_decref(found);
    if (!bad && !*text_out && c->command == FOR_GENERATE && !c->o.model)
        bad = check_language(path, file);
    wf_safetensors_close(file);
    if (!*text_out) *text_out = strdup("");
    return bad;
}

/* ---- options take it over ---- */

exit_status about_take(cli *c, const saved_model *a, option_id id, const char *key) {
    char name[TEXT_BYTES], text[TEXT_BYTES];
    const json_t *value = json_object_get(a->all, key);
    if (json_is_boolean(value))
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.15g", json_real_value(value));
    else
        return EXIT_DONE;
    if (!option_is_given(&c->o, id)) {
        if (option_set(&c->o, id, text)) return EXIT_DONE;
        return complain(EXIT_FAILED, "%s: %s", a->path, c->o.error);
    }
    char buffer[TEXT_BYTES];
    const char *given = option_text(&c->o, id, buffer);
    if (!strcmp(given, text)) return EXIT_DONE;
    if (json_is_real(value) && strtod(given, NULL) == json_real_value(value)) return EXIT_DONE;
    return complain(EXIT_USAGE, "%s %s: the model in %s has %s", option_name(name, id), given,
                    a->path, text);
}

/* Checks the saved sizes against those of a model that is chosen by name. */
static exit_status check_sizes(const cli *c, const saved_model *a, const wf_model_info *model) {
    const struct {
        const char *key;
        int64_t has;
    } sizes[] = {{"layers", model->n_layers}, {"hidden", model->hidden}, {"heads", model->n_heads}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const json_t *value = json_object_get(a->all, sizes[i].key);
        if (json_is_integer(value) && json_integer_value(value) != sizes[i].has)
            return complain(EXIT_USAGE,
                            "--model %s has %lld %s, but the model in %s %lld: --model gpt takes "
                            "its sizes from there",
                            c->o.model, (long long)sizes[i].has, sizes[i].key, a->path,
                            (long long)json_integer_value(value));
    }
    return EXIT_DONE;
}

/* Beside Hugging Face's weights lies their tokenizer; of those that know its hash it is held
 * against that. */
static exit_status find_tokenizer(cli *c, const saved_model *a) {
    static const char *const files[] = {"tokenizer.json", "vocab.json"};
    char folder[4096], path[4200];
    bool wants = json_is_true(json_object_get(a->all, "from_config")) ||
                 (a->tokenizer && !strcmp(a->tokenizer, "bpe"));
    if (c->o.tokenizer || c->o.words || !wants) return EXIT_DONE;
    about_folder_of(a->path, folder, sizeof folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (access(path, F_OK)) continue;
        return option_set(&c->o, OPT_tokenizer, folder) ? EXIT_DONE
                                                        : complain(EXIT_FAILED, "%s", c->o.error);
    }
    return EXIT_DONE;
}

static exit_status take(cli *c, saved_model *a) {
    static const struct {
        option_id id;
        const char *key;
    } sizes[] = {
        {OPT_layers, "layers"}, {OPT_hidden, "hidden"},       {OPT_heads, "heads"},
        {OPT_vocab, "vocab"},   {OPT_embedding, "embedding"}, {OPT_tied, "tied"},
        {OPT_ffn, "ffn"},       {OPT_kv_heads, "kv_heads"},   {OPT_rope_theta, "rope_theta"}};
    const char *name = json_string_value(json_object_get(a->all, "model"));
    const json_t *tokenizer = json_object_get(a->all, "tokenizer");
    if (!c->o.model && name && !option_set(&c->o, OPT_model, name))
        return complain(EXIT_FAILED, "%s", c->o.error);
    const wf_model_info *model = c->o.model ? wf_model_registry_find(c->o.model) : NULL;
    if (!model) return EXIT_DONE; /* others refuse it */
    if (!model->takes_tokens) return about_take_images(c, a);
    const wf_model_info *saved = name ? wf_model_registry_find(name) : NULL;
    if (saved && (saved->is_recurrent != model->is_recurrent || saved->is_gated != model->is_gated))
        return complain(EXIT_USAGE, "--model %s: the model in %s is %s", c->o.model, a->path, name);
    a->vocab = json_integer_value(json_object_get(a->all, "vocab"));
    a->positions = json_integer_value(json_object_get(a->all, "positions"));
    a->tokens = json_integer_value(json_object_get(a->all, "tokens"));
    a->tokenizer = json_string_value(json_object_get(tokenizer, "kind"));
    a->hash = json_string_value(json_object_get(tokenizer, "hash"));
    a->words = json_string_value(json_object_get(tokenizer, "words"));
    exit_status bad = find_tokenizer(c, a);
    if (bad || !model->has_sizes) return bad ? bad : check_sizes(c, a, model);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !bad; i++)
        bad = about_take(c, a, sizes[i].id, sizes[i].key);
    return bad;
}

/* Properties that no option sets: X(key and field) of numbers and of integers. */
#define REALS(X)    X(norm_eps) X(rope_factor) X(rope_low) X(rope_high)
#define INTEGERS(X) X(rope_positions) X(qkv_bias) X(window)

void about_take_properties(const saved_model *a, wf_model_config *config) {
#define TAKE_REAL(key)    config->key = json_number_value(json_object_get(a->all, #key));
#define TAKE_INTEGER(key) config->key = json_integer_value(json_object_get(a->all, #key));
    REALS(TAKE_REAL)
    INTEGERS(TAKE_INTEGER)
}

static void add_properties(const wf_model_config *config, json_t *all) {
#define ADD_REAL(key)                                                                              \
    if (config->key != 0) json_object_set_new(all, #key, json_real(config->key));
#define ADD_INTEGER(key)                                                                           \
    if (config->key) json_object_set_new(all, #key, json_integer((json_int_t)config->key));
    REALS(ADD_REAL)
    INTEGERS(ADD_INTEGER)
}

/* Which of two files a folder stands for. */
static void say_average(const cli *c) {
    static const char *const ends[] = {"", ".index.json"};
    char path[4200];
    for (int i = 0; i < 2 && c->o.init && !c->o.resume && !c->o.quiet; i++) {
        snprintf(path, sizeof path, "%.4000s/model_ema.safetensors%s", c->o.init, ends[i]);
        if (access(path, F_OK)) continue;
        complain(EXIT_DONE, "reading %s, the average of the weights", path);
        return;
    }
}

static exit_status read_snapshot(const cli *c, char **text_out) {
    json_t *notes = json_loads(snapshot_record(c->snapshot, c->image), 0, NULL);
    const char *text = json_string_value(json_object_get(notes, ABOUT_KEY));
    *text_out = text ? strdup(text) : NULL;
    json_decref(notes);
    return *text_out ? EXIT_DONE : complain(EXIT_FAILED, "a snapshot does not record its model");
}

exit_status about_read(cli *c, saved_model *about_out) {
    char state[4200];
    const char *path = c->o.init;
    char *text = NULL;
    memset(about_out, 0, sizeof *about_out);
    if (c->image) {
        path = "a snapshot";
    } else if (c->o.resume) {
        snprintf(state, sizeof state, "%.4000s/state.safetensors", c->o.out ? c->o.out : ".");
        path = state;
    }
    if (!path) return EXIT_DONE;
    if (c->is_root) say_average(c);
    exit_status bad = EXIT_DONE;
    if (c->is_root) bad = c->image ? read_snapshot(c, &text) : read_text(c, path, &text);
    bad = agree_on_text(c, bad, &text);
    about_out->all = !bad && text && *text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    about_out->path = c->image ? path : c->o.resume ? c->o.out : c->o.init;
    return bad || (!about_out->all && c->command != FOR_PREDICT) ? bad : take(c, about_out);
}

void about_release(saved_model *a) {
    json_decref(a->all);
    memset(a, 0, sizeof *a);
}

/* ---- tokens ---- */

/* A tokenizer of an unsupported kind is left out if it only lies with the weights, and the data is
 * tokens. */
static wf_status open_tokenizer(const cli *c, wf_tokenizer **tokenizer_out) {
    const options *o = &c->o;
    wf_status status = wf_tokenizer_open(c->ctx, o->tokenizer, tokenizer_out);
    bool is_needed =
        option_is_given(o, OPT_tokenizer) || c->command == FOR_GENERATE ||
        wf_data_find_format(o->data, (wf_data_format)o->data_format) != WF_FORMAT_TOKENS;
    if (status != WF_UNSUPPORTED || is_needed) return status;
    if (c->is_root && !o->quiet)
        complain(EXIT_DONE, "%s; not used, because %s has tokens", wf_context_error(c->ctx),
                 o->data);
    return WF_OK;
}

exit_status about_tokenizer(const cli *c, const saved_model *a, wf_tokenizer **tokenizer_out) {
    wf_status status = WF_OK;
    *tokenizer_out = NULL;
    if (c->o.tokenizer)
        status = open_tokenizer(c, tokenizer_out);
    else if (a->tokenizer && a->words && !strcmp(a->tokenizer, "words") && !c->o.other_data)
        status = wf_tokenizer_create_words(c->ctx, a->words, tokenizer_out);
    else if (a->tokenizer && !strcmp(a->tokenizer, "bpe") && c->command == FOR_GENERATE)
        return complain(EXIT_USAGE, "--tokenizer is missing: the model in %s has tokens of a BPE",
                        a->path);
    return complain_of(c, status);
}

#define GO_ON "; --other-data accepts it"

/* Checks the kind of tokens: a file of tokens does not name its tokenizer. */
static exit_status check_numbers(const cli *c, const saved_model *a) {
    bool is_synthetic = c->o.data && !strcmp(c->o.data, "synthetic");
    if (is_synthetic || !a->tokenizer || !strcmp(a->tokenizer, "bpe")) return EXIT_DONE;
    return complain(EXIT_USAGE,
                    "the model in %s was trained with tokens of the kind %.20s, and those of %s "
                    "are of another" GO_ON,
                    a->path, a->tokenizer, c->o.data);
}

static exit_status check_tokenizer(const saved_model *a, const wf_tokenizer *t) {
    const char *kind = wf_tokenizer_name(t);
    if (a->tokenizer && strcmp(a->tokenizer, kind))
        return complain(EXIT_USAGE,
                        "the model in %s was trained with tokens of the kind %.20s, not %s: its "
                        "numbers would have another meaning%s",
                        a->path, a->tokenizer, kind,
                        strcmp(a->tokenizer, "bpe") ? GO_ON : "; give its --tokenizer");
    if (a->hash && strcmp(a->hash, wf_tokenizer_hash(t)))
        return complain(EXIT_USAGE,
                        "the model in %s was trained with another vocabulary of %s (its hash is "
                        "%.8s..., not %.8s...): tokens would have another meaning" GO_ON,
                        a->path, kind, a->hash, wf_tokenizer_hash(t));
    return EXIT_DONE;
}

exit_status about_check(const cli *c, const saved_model *a, const wf_tokenizer *t) {
    exit_status bad = EXIT_DONE;
    if (!a->path) return EXIT_DONE;
    if (!c->o.other_data) bad = t ? check_tokenizer(a, t) : check_numbers(c, a);
    if (bad || !t) return bad;
    bool is_bpe = wf_tokenizer_kind_of(t) == WF_TOKENIZER_BPE;
    bool is_known = a->tokenizer && !c->o.other_data;
    int64_t n = wf_tokenizer_n_tokens(t);
    if (a->vocab && !is_known && (is_bpe ? n > a->vocab : n != a->vocab))
        return complain(EXIT_USAGE,
                        "the model in %s has a vocabulary of %lld, and there are %lld %s: give its "
                        "--tokenizer",
                        a->path, (long long)a->vocab, (long long)n,
                        is_bpe ? "tokens" : wf_tokenizer_name(t));
    return EXIT_DONE;
}

char *about_text(const cli *c, const saved_model *a, const wf_model *model, const wf_data *data) {
    const wf_tokenizer *t = wf_data_tokenizer(data);
    const wf_model_config *config = wf_model_config_of(model);
    const wf_model_info *info = wf_model_registry_find(wf_model_name(model));
    if (!info || !config) return NULL;
    json_t *all = json_pack("{s:s}", "model", info->name);
    if (info->takes_tokens) {
        json_t *sizes =
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)config->n_layers,
                      "hidden", (json_int_t)config->hidden, "heads", (json_int_t)config->n_heads,
                      "vocab", (json_int_t)config->n_classes, "positions",
                      (json_int_t)config->n_positions, "tokens", (json_int_t)config->n_tokens);
        json_object_update(all, sizes);
        if (info->is_recurrent)
            json_object_set_new(all, "embedding", json_integer((json_int_t)config->embedding));
        if (info->is_recurrent || info->is_gated)
            json_object_set_new(all, "tied", json_boolean(config->tied));
        if (info->is_gated)
            json_object_update_new(all, json_pack("{s:I, s:I, s:f}", "ffn", (json_int_t)config->ffn,
                                                  "kv_heads", (json_int_t)config->n_kv_heads,
                                                  "rope_theta", config->rope_theta));
        add_properties(config, all);
        json_decref(sizes);
        json_t *old = json_object_get(a->all, "tokenizer");
        if (t) {
            json_t *about_t =
                json_pack("{s:s, s:s}", "kind", wf_tokenizer_name(t), "hash", wf_tokenizer_hash(t));
            if (c->o.tokenizer) {
                const char *slash = strrchr(c->o.tokenizer, '/');
                bool named = slash && slash[1];
                json_object_set_new(about_t, "name",
                                    json_string(named ? slash + 1 : c->o.tokenizer));
            }
            if (wf_tokenizer_words(t))
                json_object_set_new(about_t, "words", json_string(wf_tokenizer_words(t)));
            json_object_set_new(all, "tokenizer", about_t);
        } else if (old) {
            json_object_set(all, "tokenizer", old);
        }
    } else {
        about_add_images(c, info, data, all);
    }
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

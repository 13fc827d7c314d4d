/* The config.json of Hugging Face's models as weft's metadata. */
#include "job/config_json.h"
#include "job/about.h"

#include <string.h>
#include <unistd.h>

/* Checks that members of a GPT-2 configuration besides its sizes have the values that weft
 * supports. */
static exit_status check_gpt2(const char *path, const json_t *config) {
    const char *act = json_string_value(json_object_get(config, "activation_function"));
    const json_t *inner = json_object_get(config, "n_inner");
    json_int_t width = json_integer_value(json_object_get(config, "n_embd"));
    const json_t *eps = json_object_get(config, "layer_norm_epsilon");
    if (eps && json_number_value(eps) != 1e-5)
        return complain(EXIT_USAGE, "%s: layer_norm_epsilon is not 1e-5", path);
    if (act && strcmp(act, "gelu_new") && strcmp(act, "gelu_pytorch_tanh"))
        return complain(EXIT_USAGE, "%s: activation_function is %.40s; GPT-2 has gelu_new", path,
                        act);
    if (json_is_integer(inner) && json_integer_value(inner) / 4 != width)
        return complain(EXIT_USAGE, "%s: n_inner is not 4 times n_embd, as GPT-2 has it", path);
    return EXIT_DONE;
}

static exit_status check_llama(const char *path, const json_t *config) {
    const char *act = json_string_value(json_object_get(config, "hidden_act"));
    const json_t *d = json_object_get(config, "head_dim");
    json_int_t width = json_integer_value(json_object_get(config, "hidden_size")),
               heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    if (act && strcmp(act, "silu"))
        return complain(EXIT_USAGE, "%s: hidden_act is %.40s; Llama has silu", path, act);
    if (json_is_integer(d) && json_integer_value(d) * heads != width)
        return complain(EXIT_USAGE, "%s: head_dim is not hidden_size / num_attention_heads", path);
    return EXIT_DONE;
}

/* What Hugging Face's config.json of a kind of models has, and its names in weft's metadata. */
typedef struct config_kind {
    const char *types[3], *model, *keys[7][2];
    struct {
        const char *key;
        bool wanted;
    } flags[4];
    exit_status (*check)(const char *path, const json_t *config);
} config_kind;

static const config_kind kinds[] = {
    {{"gpt2"},
     "gpt",
     {{"n_layer", "layers"},
      {"n_embd", "hidden"},
      {"n_head", "heads"},
      {"vocab_size", "vocab"},
      {"n_positions", "positions"}},
     {{"scale_attn_weights", true},
      {"tie_word_embeddings", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}},
     check_gpt2},
    {{"llama", "qwen2", "mistral"},
     "llama",
     {{"num_hidden_layers", "layers"},
      {"hidden_size", "hidden"},
      {"num_attention_heads", "heads"},
      {"num_key_value_heads", "kv_heads"},
      {"intermediate_size", "ffn"},
      {"vocab_size", "vocab"},
      {"max_position_embeddings", "positions"}},
     {{"attention_bias", false}, {"mlp_bias", false}, {"use_sliding_window", false}},
     check_llama},
};

/* What fields are that may be left out or null. */
typedef enum field_type { TRUTH, WHOLE, NUMBER, TEXT, OBJECT, NOTHING } field_type;
static const char *const field_types[] = {"true or false", "a whole number", "a positive number",
                                          "a text",        "an object",      "null"};
static const struct {
    const char *name;
    field_type type;
} fields[] = {
    {"hidden_act", TEXT},     {"head_dim", WHOLE},           {"attention_bias", TRUTH},
    {"mlp_bias", TRUTH},      {"use_sliding_window", TRUTH}, {"tie_word_embeddings", TRUTH},
    {"rope_theta", NUMBER},   {"rms_norm_eps", NUMBER},      {"sliding_window", WHOLE},
    {"rope_scaling", OBJECT}, {"rope_parameters", OBJECT},   {"quantization_config", NOTHING}};

static exit_status check_fields(const char *path, const json_t *config) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *x = json_object_get(config, fields[i].name);
        const bool is[] = {[TRUTH] = json_is_boolean(x),        [WHOLE] = json_is_integer(x),
                           [NUMBER] = json_number_value(x) > 0, [TEXT] = json_is_string(x),
                           [OBJECT] = json_is_object(x),        [NOTHING] = false};
        if (x && !json_is_null(x) && !is[fields[i].type])
            return complain(EXIT_USAGE, "%s: %s is not %s", path, fields[i].name,
                            field_types[fields[i].type]);
    }
    return EXIT_DONE;
}

static exit_status check_config(const char *path, const config_kind *k, const json_t *config) {
    TRY(check_fields(path, config));
    for (size_t i = 0; i < sizeof k->flags / sizeof *k->flags && k->flags[i].key; i++) {
        const json_t *value = json_object_get(config, k->flags[i].key);
        if (json_is_boolean(value) && json_is_true(value) != k->flags[i].wanted)
            return complain(EXIT_USAGE, "%s: %s is %s, which is not %s's", path, k->flags[i].key,
                            k->flags[i].wanted ? "false" : "true", k->model);
    }
    return k->check(path, config);
}

static exit_status take_scaling(const char *path, const json_t *scaling, json_t *about) {
    static const char *const keys[][2] = {{"factor", "rope_factor"},
                                          {"low_freq_factor", "rope_low"},
                                          {"high_freq_factor", "rope_high"},
                                          {"original_max_position_embeddings", "rope_positions"}};
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type) type = json_string_value(json_object_get(scaling, "type"));
    if (type && !strcmp(type, "default")) return EXIT_DONE;
    if (!type || strcmp(type, "llama3"))
        return complain(EXIT_USAGE,
                        "%s: rotary positions are scaled by %.40s; supported are default and "
                        "llama3",
                        path, type ? type : "no rope_type");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(scaling, keys[i][0]);
        if (!(json_number_value(value) > 0) || (i == 3 && !json_is_integer(value)))
            return complain(EXIT_FAILED, "%s does not state its %s", path, keys[i][0]);
        json_object_set(about, keys[i][1], value);
    }
    return EXIT_DONE;
}

/* Newer versions of transformers keep theta and its scaling in an object. A value that is left out
 * is the usual one. */
static exit_status take_llama(const char *path, const json_t *config, json_t *about) {
    const json_t *theta = json_object_get(config, "rope_theta"),
                 *scaling = json_object_get(config, "rope_scaling"),
                 *both = json_object_get(config, "rope_parameters"),
                 *eps = json_object_get(config, "rms_norm_eps"),
                 *window = json_object_get(config, "sliding_window");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (json_object_get(both, "rope_theta")) theta = json_object_get(both, "rope_theta");
    if (!json_is_object(scaling) &&
        (json_object_get(both, "rope_type") || json_object_get(both, "type")))
        scaling = both;
    if (theta && !json_is_null(theta) && !(json_number_value(theta) > 0))
        return complain(EXIT_USAGE, "%s: rope_theta is not a positive number", path);
    json_object_set_new(about, "rope_theta",
                        json_real(json_is_number(theta) ? json_number_value(theta) : 10000));
    json_object_set_new(about, "qkv_bias", json_integer(!strcmp(type, "qwen2")));
    if (json_is_integer(window) && json_integer_value(window) < 2)
        return complain(EXIT_USAGE, "%s: sliding_window is below 2", path);
    if (!strcmp(type, "mistral")) /* of the others only with use_sliding_window */
        json_object_set_new(about, "window",
                            json_integer(window ? json_integer_value(window) : 4096));
    json_object_set_new(about, "norm_eps",
                        json_real(json_is_number(eps) ? json_number_value(eps) : 1e-6));
    json_object_set_new(about, "tied",
                        json_boolean(json_is_true(json_object_get(config, "tie_word_embeddings"))));
    return json_is_object(scaling) ? take_scaling(path, scaling, about) : EXIT_DONE;
}

static exit_status convert_config(const char *path, const config_kind *k, const json_t *config,
                                  json_t **about_out) {
    exit_status bad = check_config(path, k, config);
    *about_out = json_pack("{s:s}", "model", k->model);
    for (size_t i = 0; i < sizeof k->keys / sizeof *k->keys && k->keys[i][0] && !bad; i++) {
        json_t *value = json_object_get(config, k->keys[i][0]);
        if (!value && !strcmp(k->keys[i][1], "kv_heads")) continue; /* as many as heads */
        if (!json_is_integer(value) || json_integer_value(value) < 1)
            bad = complain(EXIT_FAILED, "%s does not state its %s", path, k->keys[i][0]);
        else
            json_object_set(*about_out, k->keys[i][1], value);
    }
    if (k->check == check_llama && !bad) bad = take_llama(path, config, *about_out);
    json_object_set_new(*about_out, "from_config", json_true());
    return bad;
}

exit_status config_json_read(const cli *c, const char *weights, json_t **about_out) {
    char path[4200], folder[4096];
    about_folder_of(weights, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = about_read_json(c, path);
    if (!config && !access(path, F_OK))
        return complain(EXIT_FAILED, "%s is damaged: it is not JSON", path);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    exit_status bad = EXIT_DONE;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && type; k++)
        for (size_t i = 0; i < 3 && kinds[k].types[i]; i++)
            if (!strcmp(type, kinds[k].types[i]))
                bad = convert_config(path, &kinds[k], config, about_out);
    json_decref(config);
    return bad;
}

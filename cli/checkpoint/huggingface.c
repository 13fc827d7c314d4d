/* The files beside a GPT-2's or Llama's weights that Hugging Face's from_pretrained needs, and weft
 * itself: config.json, and a copy of the tokenizer. */
#include "checkpoint/checkpoint.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every GPT-2 of weft's is computed like this. Attention weights have no dropout. */
static const char all_gpt2[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_inner\": null, "
    "\"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-5, "
    "\"initializer_range\": 0.02, \"attn_pdrop\": 0.0, \"tie_word_embeddings\": true, "
    "\"scale_attn_weights\": true, \"scale_attn_by_inverse_layer_idx\": false, "
    "\"add_cross_attention\": false, \"use_cache\": true}";
static const char all_llama[] =
    "{\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"attention_bias\": false, "
    "\"attention_dropout\": 0.0, \"mlp_bias\": false, \"use_cache\": true}";

/* The BPE of the tokens that the model reads: the data's. Files of tokens have none themselves, so
 * the one that came with the model counts. NULL: there is none. */
static const wf_tokenizer *find_bpe(const job *j) {
    const wf_tokenizer *t = wf_data_tokenizer(j->data);
    if (!t && !j->c->o.other_data) t = j->tokenizer;
    return t && wf_tokenizer_kind_of(t) == WF_TOKENIZER_BPE ? t : NULL;
}

/* The token that begins and ends GPT-2's texts. null where the vocabulary has none: a missing key
 * would mean 50256. */
static json_t *end_of_text(const job *j, const wf_tokenizer *bpe) {
    static const char text[] = "<|endoftext|>";
    int32_t *tokens;
    int64_t n;
    if (!bpe || wf_tokenizer_encode(bpe, text, text, strlen(text), &tokens, &n) != WF_OK)
        return json_null();
    json_t *token = n == 1 ? json_integer(tokens[0]) : json_null();
    wf_tokens_free(j->c->ctx, tokens);
    return token;
}

typedef struct size {
    const char *key;
    int64_t value;
} size;

static json_t *make_family(const wf_model_config *c) {
    static const char *const names[][2] = {{"llama", "LlamaForCausalLM"},
                                           {"qwen2", "Qwen2ForCausalLM"},
                                           {"mistral", "MistralForCausalLM"}};
    const char *const *name = names[c->qkv_bias ? 1 : c->window ? 2 : 0];
    return json_pack("{s:s, s:[s]}", "model_type", name[0], "architectures", name[1]);
}

static json_t *make_scaling(const wf_model_config *c) {
    if (c->rope_factor == 0) return json_null();
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor,
                     "low_freq_factor", c->rope_low, "high_freq_factor", c->rope_high,
                     "original_max_position_embeddings", (json_int_t)c->rope_positions);
}

static json_t *make_config(const wf_model_config *c, bool is_llama) {
    const size gpt2[] = {{"n_layer", c->n_layers},        {"n_head", c->n_heads},
                         {"n_embd", c->hidden},           {"n_ctx", c->n_positions},
                         {"n_positions", c->n_positions}, {"vocab_size", c->n_classes}};
    const size llama[] = {{"num_hidden_layers", c->n_layers},
                          {"num_attention_heads", c->n_heads},
                          {"num_key_value_heads", c->n_kv_heads},
                          {"hidden_size", c->hidden},
                          {"intermediate_size", c->ffn},
                          {"max_position_embeddings", c->n_positions},
                          {"vocab_size", c->n_classes}};
    const size *sizes = is_llama ? llama : gpt2;
    size_t n = is_llama ? sizeof llama / sizeof *llama : sizeof gpt2 / sizeof *gpt2;
    json_t *all = json_loads(is_llama ? all_llama : all_gpt2, 0, NULL);
    for (size_t i = 0; i < n; i++)
        json_object_set_new(all, sizes[i].key, json_integer((json_int_t)sizes[i].value));
    if (is_llama) {
        json_object_update_new(all, make_family(c));
        json_object_set_new(all, "tie_word_embeddings", json_boolean(c->tied));
        json_object_set_new(all, "rope_theta", json_real(c->rope_theta));
        json_object_set_new(all, "rms_norm_eps", json_real(c->norm_eps));
        json_object_set_new(all, "rope_scaling", make_scaling(c));
        json_object_set_new(all, "sliding_window",
                            c->window ? json_integer((json_int_t)c->window) : json_null());
    } else {
        json_object_set_new(all, "embd_pdrop", json_real(c->dropout));
        json_object_set_new(all, "resid_pdrop", json_real(c->dropout));
    }
    return all;
}

static exit_status write_config(const job *j, const wf_model_info *info) {
    char path[4096];
    json_t *all = make_config(wf_model_config_of(j->model), info->is_gated),
           *end = end_of_text(j, find_bpe(j));
    json_object_set(all, "bos_token_id", end);
    json_object_set_new(all, "eos_token_id", end);
    snprintf(path, sizeof path, "%.4000s/config.json", j->c->o.out);
    exit_status bad = report_put(j->c, all, "the model's configuration", path);
    json_decref(all);
    return bad;
}

static exit_status copy_file(const cli *c, const char *from, const char *name) {
    char to[4096];
    int fd;
    uint64_t n_bytes;
    wf_status status = wf_file_open(c->ctx, from, &fd, &n_bytes);
    if (status != WF_OK) return complain_of(c, status);
    snprintf(to, sizeof to, "%.3800s/%.200s", c->o.out, name);
    FILE *file = fdopen(fd, "rb");
    char *bytes = file ? malloc(n_bytes + 1) : NULL;
    bool good = bytes && fread(bytes, 1, n_bytes, file) == n_bytes;
    if (good) status = wf_file_replace(c->ctx, to, bytes, n_bytes);
    free(bytes);
    if (file) fclose(file);
    return good ? complain_of(c, status) : complain(EXIT_FAILED, "%s cannot be copied", from);
}

/* The files that wf_tokenizer_open has read. */
static exit_status copy_tokenizer(const cli *c) {
    static const char *const files[] = {"tokenizer.json", "vocab.json", "merges.txt"};
    char path[4096];
    exit_status bad = EXIT_DONE;
    bool any = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !bad; i++) {
        snprintf(path, sizeof path, "%.3800s/%s", c->o.tokenizer, files[i]);
        if (access(path, F_OK)) continue;
        any = true;
        bad = copy_file(c, path, files[i]);
        if (i == 0) return bad; /* it alone is read */
    }
    return any ? bad : copy_file(c, c->o.tokenizer, files[0]); /* the file itself was given */
}

exit_status checkpoint_describe_model(const job *j) {
    const wf_model_info *info = wf_model_registry_find(wf_model_name(j->model));
    if (!info->takes_tokens || info->is_recurrent) return EXIT_DONE;
    exit_status bad = write_config(j, info);
    return !bad && find_bpe(j) && j->c->o.tokenizer ? copy_tokenizer(j->c) : bad;
}

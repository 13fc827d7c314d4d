/* Patterns by PCRE2, which knows Unicode's classes of characters. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/bpe.h"

#include <pcre2.h>
#include <string.h>

struct wfi_splitter {
    wf_context *ctx;
    const char *name;
    pcre2_general_context *memory;
    pcre2_code *pattern;
};

struct wfi_split {
    const wfi_splitter *splitter;
    pcre2_match_data *found;
};

/* White space as Unicode's White_Space has it, and so Hugging Face's tokenizers and tiktoken;
 * PCRE2's \s has one character more. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"          \
    "\\x{205f}\\x{3000}"

#define NO_SPACE "[^" SPACE "\\p{L}\\p{N}]"
#define REST     "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

/* Known ones only: another pattern may take time without end, and would mean other white space. */
static const struct {
    const char *in_files; /* as tokenizer.json has it; NULL: it is ByteLevel's own */
    const char *pattern;
} patterns[] = {{NULL, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" NO_SPACE "+" REST},
                /* Llama 3, and OpenAI's cl100k */
                {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                 "| ?" NO_SPACE "+[\\r\\n]*|[" SPACE "]*[\\r\\n]+" REST}};

static const char *find_pattern(const char *in_files, const char **name_out) {
    for (size_t i = 0; i < WFI_COUNT(patterns); i++) {
        *name_out = patterns[i].in_files ? patterns[i].in_files : "";
        if (!strcmp(*name_out, in_files ? in_files : "")) return patterns[i].pattern;
    }
    return NULL;
}

static void *take(size_t n_bytes, void *ctx) {
    return wfi_alloc(ctx, n_bytes ? n_bytes : 1, 1, "a pattern");
}

static void give_back(void *block, void *ctx) {
    wfi_free(ctx, block);
}

wf_status wfi_splitter_create(wf_context *ctx, const char *in_files, wfi_splitter **splitter_out) {
    const char *name, *pattern = find_pattern(in_files, &name);
    if (!pattern)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "the pre_tokenizer's pattern '%.60s...' is neither GPT-2's nor Llama 3's",
                        in_files);
    wfi_splitter *s = wfi_alloc(ctx, 1, sizeof *s, "a pattern");
    int code = 0;
    size_t at = 0;
    if (!s) return WF_NO_MEMORY;
    s->ctx = ctx;
    s->name = name;
    s->memory = pcre2_general_context_create(take, give_back, ctx);
    pcre2_compile_context *how = s->memory ? pcre2_compile_context_create(s->memory) : NULL;
    if (how)
        s->pattern =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, how);
    pcre2_compile_context_free(how);
    if (s->pattern) {
        *splitter_out = s;
        return WF_OK;
    }
    wfi_splitter_destroy(s);
    if (!how || code == PCRE2_ERROR_NOMEMORY) return wfi_no_memory(ctx, 0, "a pattern");
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "PCRE2 does not take the pattern (error %d at %zu); was it built without "
                    "Unicode?",
                    code, at);
}

const char *wfi_splitter_name(const wfi_splitter *splitter) {
    return splitter->name;
}

void wfi_splitter_destroy(wfi_splitter *s) {
    if (!s) return;
    pcre2_code_free(s->pattern);
    pcre2_general_context_free(s->memory);
    wfi_free(s->ctx, s);
}

wf_status wfi_split_begin(const wfi_splitter *splitter, wfi_split **split_out) {
    wf_context *ctx = splitter->ctx;
    wfi_split *split = wfi_alloc(ctx, 1, sizeof *split, "a text's pieces");
    if (!split) return WF_NO_MEMORY;
    split->splitter = splitter;
    split->found = pcre2_match_data_create_from_pattern(splitter->pattern, splitter->memory);
    if (!split->found) {
        wfi_split_end(split);
        return wfi_no_memory(ctx, 0, "a text's pieces");
    }
    *split_out = split;
    return WF_OK;
}

wf_status wfi_split_next(wfi_split *split, const uint8_t *text, size_t n, size_t at,
                         size_t *length_out) {
    int code = pcre2_match(split->splitter->pattern, text, n, at,
                           PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, split->found, NULL);
    if (code <= 0)
        return wfi_fail(split->splitter->ctx, WF_UNSUPPORTED,
                        "PCRE2 cannot divide a text at byte %zu (error %d)", at, code);
    *length_out = pcre2_get_ovector_pointer(split->found)[1] - at;
    return WF_OK;
}

void wfi_split_end(wfi_split *split) {
    if (!split) return;
    pcre2_match_data_free(split->found);
    wfi_free(split->splitter->ctx, split);
}

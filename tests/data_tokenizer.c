/* Tokenizers: byte-level BPE against Hugging Face's own results (tests/golden/make_bpe.py), files
 * that disagree; bytes and words.
 *
 * label: serial
 */
#include "data_folder.h"

#include "base/base.h"
#include "data/bpe.h"
#include <jansson.h>

#define GOLDEN "tests/golden/bpe"

/* ---- golden ---- */

static void check_case(wf_context *ctx, wf_tokenizer *t, const char *text, size_t n_bytes,
                       const json_t *ids) {
    int32_t *tokens;
    int64_t n;
    char *back;
    size_t n_back;
    assert_int_equal(wf_tokenizer_encode(t, "text", text, n_bytes, &tokens, &n), WF_OK);
    bool same = n == (int64_t)json_array_size(ids);
    for (int64_t i = 0; i < n && same; i++)
        same = tokens[i] == json_integer_value(json_array_get(ids, (size_t)i));
    if (!same) fail_msg("other tokens for '%s'", text);
    assert_int_equal(wf_tokenizer_decode(t, tokens, n, &back, &n_back), WF_OK);
    assert_int_equal(n_back, n_bytes);
    assert_memory_equal(back, text, n_bytes);
    wf_text_free(ctx, back);
    wf_tokens_free(ctx, tokens);
}

static int check_cases(wf_context *ctx, wf_tokenizer *t) {
    FILE *file = fopen(GOLDEN "/cases.txt", "r");
    char *line = NULL;
    size_t capacity = 0;
    int n = 0;
    assert_non_null(file);
    for (json_t *text = NULL; getline(&line, &capacity, file) > 0;) {
        json_t *value = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        if (json_is_string(value)) {
            text = value;
            continue;
        }
        check_case(ctx, t, json_string_value(text), json_string_length(text), value);
        json_decref(value);
        json_decref(text);
        n++;
    }
    free(line);
    fclose(file);
    return n;
}

TEST_IN_FOLDER(gives_hugging_faces_tokens) {
    scoped_tokenizer one;
    scoped_tokenizer two;
    char path[400];
    assert_int_equal(wf_tokenizer_open(f->ctx, GOLDEN, &one), WF_OK);
    assert_int_equal(wf_tokenizer_n_tokens(one), 472);
    assert_true(check_cases(f->ctx, one) > 150);
    /* vocab.json and merges.txt alone say the same. */
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "merges.txt" : "vocab.json";
        snprintf(path, sizeof path, "%s", folder_file(f, name));
        char from[100];
        snprintf(from, sizeof from, GOLDEN "/%s", name);
        FILE *in = fopen(from, "r"), *out = fopen(path, "w");
        assert_true(in && out);
        for (int c; (c = fgetc(in)) != EOF;) fputc(c, out);
        fclose(in);
        fclose(out);
    }
    assert_int_equal(wf_tokenizer_open(f->ctx, f->path, &two), WF_OK);
    check_cases(f->ctx, two);
    assert_string_equal(wf_tokenizer_hash(one), wf_tokenizer_hash(two));
}

/* A long word costs time as its length, not as its square: a million letters are a second's work.
 */
TEST_IN_FOLDER(takes_long_words) {
    enum { N = 1000000 };
    char *text = malloc(N);
    wf_tokenizer *t;
    int32_t *tokens;
    int64_t n;
    assert_non_null(text);
    for (int i = 0; i < N; i++) text[i] = "theadsre"[i * 7 % 8];
    assert_int_equal(wf_tokenizer_open(f->ctx, GOLDEN, &t), WF_OK);
    assert_int_equal(wf_tokenizer_encode(t, "text", text, N, &tokens, &n), WF_OK);
    assert_true(n > 0 && n <= N);
    wf_tokens_free(f->ctx, tokens);
    memset(text, ' ', N);
    assert_int_equal(wf_tokenizer_encode(t, "text", text, N, &tokens, &n), WF_OK);
    wf_tokens_free(f->ctx, tokens);
    expect_failure(f->ctx, wf_tokenizer_encode(t, "a.txt", "gr\xfc\xdf", 4, &tokens, &n),
                   WF_CORRUPT, "a.txt is not UTF-8 at byte 2");
    char *back;
    size_t n_back;
    expect_failure(f->ctx, wf_tokenizer_decode(t, (int32_t[]){3, 472}, 2, &back, &n_back),
                   WF_INVALID_ARG, "no token 472 in a vocabulary of 472");
    wf_tokenizer_destroy(t);
    free(text);
}

/* ---- files that disagree ---- */

/* The golden file with one text in it replaced; the caller frees it. */
static wfi_bpe_file changed(const char *path, const char *from, const char *to) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 100000), *whole = calloc(1, 100000), *at;
    assert_true(file && text && whole);
    assert_true(fread(text, 1, 99999, file) > 1000);
    fclose(file);
    at = strstr(text, from);
    if (!at) fail_msg("%s has no '%s'", path, from);
    snprintf(whole, 100000, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return (wfi_bpe_file){strrchr(path, '/') + 1, whole, strlen(whole)};
}

/* ---- Llama 3's pattern ---- */

#define GPT2_SPLIT                                                                                 \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"  \
    "\"use_regex\":true}"
#define SPLIT(regex)                                                                               \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_"    \
    "prefix_space\":"                                                                              \
    "false,\"trim_offsets\":true,\"use_regex\":false}]"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}"           \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static void replace(wfi_bpe_file *file, const char *from, const char *to) {
    char *at = strstr(file->text, from), *whole = calloc(1, 100000);
    if (!at || !whole) fail_msg("there is no '%s'", from);
    snprintf(whole, 100000, "%.*s%s%s", (int)(at - file->text), file->text, to, at + strlen(from));
    free(file->text);
    *file = (wfi_bpe_file){file->path, whole, strlen(whole)};
}

static void expect_tokens(folder *f, const wfi_bpe_file *file, const char *text,
                          const int32_t *want, int64_t n_want) {
    wfi_bpe *bpe;
    int32_t *tokens;
    int64_t n;
    assert_int_equal(wfi_bpe_parse(f->ctx, file, 1, &bpe), WF_OK);
    assert_int_equal(wfi_bpe_encode(bpe, "text", (const uint8_t *)text, strlen(text), &tokens, &n),
                     WF_OK);
    if (n != n_want || memcmp(tokens, want, (size_t)n * sizeof *want))
        fail_msg("'%s' has other tokens than Hugging Face's", text);
    wfi_free(f->ctx, tokens);
    wfi_bpe_destroy(bpe);
}

/* What Hugging Face's library gives for the golden file, changed so. */
TEST_IN_FOLDER(divides_as_llama) {
    static const char text[] = "It'S (the) 12345\r\n\n  there\xc2\x85\n.the";
    const int32_t want[] = {321, 7,   51,  289, 406, 9,   221, 17,  18,  19, 20,
                            21,  202, 199, 199, 221, 298, 127, 228, 199, 14, 406};
    wfi_bpe_file file =
        changed(GOLDEN "/tokenizer.json", GPT2_SPLIT, "\"pre_tokenizer\":" SPLIT(LLAMA3) "}");
    expect_tokens(f, &file, text, want, WFI_COUNT(want));
    /* A piece that is a token is one, though no merge makes it. */
    replace(&file, "[\"\u0120the\",\"re\"],", "");
    expect_tokens(f, &file, " there", (int32_t[]){259, 260}, 2);
    replace(&file, "\"ignore_merges\":false", "\"ignore_merges\":true");
    expect_tokens(f, &file, " there", (int32_t[]){298}, 1);
    free(file.text);
}

static void refuse_one(folder *f, const char *from, const char *to, wf_status status,
                       const char *sentence) {
    wfi_bpe *bpe;
    wfi_bpe_file file = changed(GOLDEN "/tokenizer.json", from, to);
    expect_failure(f->ctx, wfi_bpe_parse(f->ctx, &file, 1, &bpe), status, sentence);
    free(file.text);
}

static void refuse_two(folder *f, int which, const char *from, const char *to,
                       const char *sentence) {
    wfi_bpe *bpe;
    wfi_bpe_file file[2] = {changed(GOLDEN "/vocab.json", which ? "{" : from, which ? "{" : to),
                            changed(GOLDEN "/merges.txt", which ? from : "#", which ? to : "#")};
    expect_failure(f->ctx, wfi_bpe_parse(f->ctx, file, 2, &bpe), WF_CORRUPT, sentence);
    free(file[0].text);
    free(file[1].text);
}

TEST_IN_FOLDER(refuses_files_that_disagree) {
    wf_tokenizer *t;
    refuse_two(f, 0, "\"!\":1", "\"!\":2", "vocab.json: the number 2 of token");
    refuse_two(f, 0, "\"!\":1", "\"!\":5000",
               "vocab.json: the number of token '!' is not one of 0 to 471, though there are 472");
    refuse_two(f, 0, "\"!\":1", "\"!\":-1", "the number of token '!' is not one of");
    refuse_two(f, 0, "\"!\":1", "\"!\":\"1\"", "the number of token '!' is not one of");
    refuse_two(f, 0, "\"!\":1", "\"\\\"\":1", "vocab.json, line 1: duplicate object key");
    refuse_two(f, 0, "\"!\":1", "\"你\":1", "has characters that represent no byte");
    refuse_two(f, 0, "\"!\":1", "\"th!!\":1", "vocab.json has no token for the byte 0x21 alone");
    refuse_two(f, 0, "\"!\":1", "\"!\":1,", "vocab.json, line 1");
    refuse_two(f, 0, "\"!\"", "\"\xff\"", "vocab.json, line 1: unable to decode byte 0xff");
    refuse_two(f, 1, "t h\n", "t qqq\n", "line 2 merges 'qqq', which the vocabulary does not have");
    refuse_two(f, 1, "t h\n", "q q\n", "line 2 makes 'qq', which the vocabulary does not have");
    refuse_two(f, 1, "t h\n", "th\n", "line 2 is 'th', not two tokens");
    refuse_two(f, 1, "t h\n", "t h e\n", "line 2 is 't h e', not two tokens");
    refuse_two(f, 1, "r e\n", "t h\n", "line 5 merges 't' and 'h' again");
    refuse_two(f, 1, "t h\n", "t \xff\n", "merges.txt is not UTF-8 text at byte 16");
    refuse_one(f, "\"BPE\"", "\"Unigram\"", WF_UNSUPPORTED, "the model is not a BPE");
    refuse_one(f, "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", WF_UNSUPPORTED,
               "has a normalizer that");
    refuse_one(f, "\"add_prefix_space\":false", "\"add_prefix_space\":true", WF_UNSUPPORTED,
               "has a add_prefix_space that");
    refuse_one(f, "\"use_regex\":true", "\"use_regex\":false", WF_UNSUPPORTED,
               "the pre_tokenizer is neither GPT-2's");
    refuse_one(f, GPT2_SPLIT, "\"pre_tokenizer\":" SPLIT("\\\\w+") "}", WF_UNSUPPORTED,
               "the pre_tokenizer's pattern '\\w+...' is neither GPT-2's nor Llama 3's");
    refuse_one(f, "\"byte_fallback\":false", "\"byte_fallback\":true", WF_UNSUPPORTED,
               "has a byte_fallback");
    refuse_one(f, "\"lstrip\":false", "\"lstrip\":true", WF_UNSUPPORTED, "is lstrip");
    refuse_one(f, "\"id\":0", "\"id\":7", WF_CORRUPT, "has another number in the vocabulary");
    refuse_one(f, "\"<|endoftext|>\",\"single", "\"<|end|>\",\"single", WF_CORRUPT,
               "the number 0 of token '<|end|>' is another token's");
    refuse_one(f, "[\"t\",\"h\"]", "7", WF_CORRUPT, "merge 0 is not a pair of tokens");
    refuse_one(f, "\"merges\":", "\"merges\":{},\"other\":", WF_CORRUPT, "merges is not a list");
    refuse_one(f, "\"added_tokens\":", "\"added_tokens\":5,\"other\":", WF_CORRUPT,
               "added_tokens is not a list");
    expect_failure(f->ctx, wf_tokenizer_open(f->ctx, f->path, &t), WF_IO,
                   "contains no tokenizer: neither tokenizer.json nor vocab.json and merges.txt");
}

/* ---- bytes and words ---- */

static void check_round(folder *f, wf_tokenizer *t, const char *text, int64_t n_wanted,
                        const char *wanted) {
    int32_t *tokens;
    int64_t n;
    char *back;
    size_t n_back;
    assert_int_equal(wf_tokenizer_encode(t, "text", text, strlen(text), &tokens, &n), WF_OK);
    assert_int_equal(n, n_wanted);
    assert_int_equal(wf_tokenizer_decode(t, tokens, n, &back, &n_back), WF_OK);
    assert_string_equal(back, wanted);
    assert_int_equal(n_back, strlen(wanted));
    wf_text_free(f->ctx, back);
    wf_tokens_free(f->ctx, tokens);
}

TEST_IN_FOLDER(knows_bytes_and_words) {
    wf_tokenizer *bytes, *words, *none;
    int32_t *tokens;
    int64_t n;
    assert_int_equal(wf_tokenizer_create_bytes(f->ctx, &bytes), WF_OK);
    assert_int_equal(wf_tokenizer_create_words(f->ctx, "a\nrose\nis\n<eos>\n", &words), WF_OK);
    assert_int_equal(wf_tokenizer_n_tokens(bytes), 256);
    assert_int_equal(wf_tokenizer_n_tokens(words), 4);
    assert_string_equal(wf_tokenizer_name(words), "words");
    assert_string_equal(wf_tokenizer_words(words), "a\nrose\nis\n<eos>\n");
    assert_string_not_equal(wf_tokenizer_hash(words), wf_tokenizer_hash(bytes));
    check_round(f, bytes, "a r\xff", 4, "a r\xff");
    check_round(f, words, "a rose  is\na\trose", 6, "a rose is\na rose");
    expect_failure(f->ctx, wf_tokenizer_encode(words, "b.txt", "a rose was", 10, &tokens, &n),
                   WF_CORRUPT,
                   "b.txt: the word 'was' at byte 7 is not in the vocabulary of 4 words");
    expect_failure(f->ctx, wf_tokenizer_create_words(f->ctx, "a\nb\na", &none), WF_CORRUPT,
                   "'a' is listed twice");
    expect_failure(f->ctx, wf_tokenizer_create_words(f->ctx, "a\n\nb", &none), WF_CORRUPT,
                   "number 1 is empty or holds white space");
    expect_failure(f->ctx, wf_tokenizer_create_words(f->ctx, "a\n\xff", &none), WF_CORRUPT,
                   "not UTF-8 at byte 2");
    wf_tokenizer_destroy(bytes);
    wf_tokenizer_destroy(words);
}

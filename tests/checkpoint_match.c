/* Names of weights: wrappers' prefixes, masks, tied heads, and what does not fit.
 *
 * label: serial
 */
#include "data_folder.h"
#include "test.h"

#include "state/match.h"

#define MAX 32

typedef struct named {
    const char *name;
    int64_t n; /* F32 [n]; < 0: I64 scalar */
} named;

/* Values differ from tensor to tensor, but those of equal `n` are equal where `same`. */
static wf_safetensors *file_with(folder *f, const named *tensors, int n, int same) {
    static float values[MAX][16];
    wf_tensor_data data[MAX];
    wf_safetensors *file;
    const char *path = folder_file(f, "m.safetensors");
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 16; j++) values[i][j] = (float)(same ? j : i + j);
        data[i] = (wf_tensor_data){tensors[i].name, WF_F32, {1, {tensors[i].n}}, values[i]};
        if (tensors[i].n < 0) {
            data[i].dtype = WF_I64;
            data[i].shape = WF_SCALAR;
        }
    }
    assert_int_equal(wf_safetensors_write(f->ctx, path, data, n, NULL, 0), WF_OK);
    assert_int_equal(wf_safetensors_open(f->ctx, path, &file), WF_OK);
    return file;
}

static wf_status match_but(folder *f, const wf_safetensors *file, const named *wanted, int n,
                           const char *skip, int *index) {
    wfi_wanted list[MAX];
    for (int i = 0; i < n; i++) {
        list[i] = (wfi_wanted){wanted[i].name, WF_F32, {1, {wanted[i].n}}};
        if (wanted[i].n < 0) list[i] = (wfi_wanted){wanted[i].name, WF_I64, WF_SCALAR};
    }
    return wfi_match_weights(f->ctx, file, list, n, skip, index);
}

static wf_status match(folder *f, const wf_safetensors *file, const named *wanted, int n,
                       int *index) {
    return match_but(f, file, wanted, n, NULL, index);
}

TEST_IN_FOLDER(finds_by_bare_name) {
    static const named held[] = {{"fc.weight", 1},
                                 {"module.conv1.weight", 2},
                                 {"_orig_mod.module.bn1.weight", 3},
                                 {"transformer.h.0.ln_1.weight", 4},
                                 {"module.fc.weight", 1},
                                 {"wte.weight", 5}};
    scoped_safetensors file = file_with(f, held, 6, 0);
    static const named wanted[] = {{"fc.weight", 1},       {"module.fc.weight", 1},
                                   {"conv1.weight", 2},    {"bn1.weight", 3},
                                   {"h.0.ln_1.weight", 4}, {"transformer.wte.weight", 5}};
    static const char *const expected[] = {"fc.weight",
                                           "module.fc.weight",
                                           "module.conv1.weight",
                                           "_orig_mod.module.bn1.weight",
                                           "transformer.h.0.ln_1.weight",
                                           "wte.weight"};
    int index[6];
    TEST_OK(f->ctx, match(f, file, wanted, 6, index));
    for (int i = 0; i < 6; i++)
        assert_string_equal(wf_safetensors_get(file, index[i])->name, expected[i]);
    /* Only those prefixes. */
    expect_failure(f->ctx, match(f, file, &(named){"ln_1.weight", 4}, 1, index), WF_SHAPE,
                   "1 names are missing: ln_1.weight, 6 are unexpected");
}

TEST_IN_FOLDER(matches_each_tensor_once) {
    int index[2];
    scoped_safetensors file = file_with(f, (named[]){{"module.a", 1}, {"a", 1}}, 2, 0);
    assert_int_equal(match(f, file, (named[]){{"a", 1}, {"module.a", 1}}, 2, index), WF_OK);
    assert_int_equal(index[0], wf_safetensors_find(file, "a"));
    assert_int_equal(index[1], wf_safetensors_find(file, "module.a"));
    expect_failure(f->ctx, match(f, file, (named[]){{"a", 1}}, 1, index), WF_SHAPE,
                   "0 names are missing, 1 are unexpected: module.a");
}

TEST_IN_FOLDER(passes_over_what_may_differ) {
    int index[3] = {7, 7, 7};
    static const named held[] = {{"h.0.attn.bias", 9},
                                 {"transformer.h.1.attn.masked_bias", 1},
                                 {"bn1.weight", 3},
                                 {"bn2.num_batches_tracked", -1}};
    static const named wanted[] = {
        {"bn1.weight", 3}, {"bn1.num_batches_tracked", -1}, {"bn2.num_batches_tracked", -1}};
    scoped_safetensors file = file_with(f, held, 4, 0);
    assert_int_equal(match(f, file, wanted, 3, index), WF_OK);
    assert_int_equal(index[0], wf_safetensors_find(file, "bn1.weight"));
    assert_int_equal(index[1], -1);
    assert_int_equal(index[2], wf_safetensors_find(file, "bn2.num_batches_tracked"));
}

TEST_IN_FOLDER(ties_heads) {
    int index[2];
    static const named both[] = {{"transformer.wte.weight", 8}, {"lm_head.weight", 8}};
    static const named wte[] = {{"wte.weight", 8}};
    wf_safetensors *file = file_with(f, both, 2, 1);
    assert_int_equal(match(f, file, wte, 1, index), WF_OK);
    assert_int_equal(index[0], wf_safetensors_find(file, "transformer.wte.weight"));
    assert_int_equal(match(f, file, both, 2, index), WF_OK); /* not tied here */
    wf_safetensors_close(file);
    file = file_with(f, both, 2, 0);
    expect_failure(f->ctx, match(f, file, wte, 1, index), WF_SHAPE,
                   "lm_head.weight differs from wte.weight");
    wf_safetensors_close(file);
    file = file_with(f, both + 1, 1, 0);
    assert_int_equal(match(f, file, wte, 1, index), WF_OK);
    assert_int_equal(index[0], 0);
    expect_failure(f->ctx, match(f, file, (named[]){{"fc.weight", 8}}, 1, index), WF_SHAPE,
                   "1 names are missing: fc.weight, 1 are unexpected: lm_head.weight");
    wf_safetensors_close(file);
}

/* Neither the embedding nor the head that is tied to it comes from the file. */
TEST_IN_FOLDER(skips_tied_heads) {
    static const named held[] = {{"h.0.bias", 2}, {"lm_head.weight", 8}, {"wte.weight", 4}};
    static const named wanted[] = {{"h.0.bias", 2}, {"transformer.wte.weight", 8}};
    for (int n = 1; n <= 3; n++) {
        scoped_safetensors file = file_with(f, held, n, 0);
        int index[2] = {7, 7};
        TEST_OK(f->ctx, match_but(f, file, wanted, 2, "wte", index));
        assert_int_equal(index[0], wf_safetensors_find(file, "h.0.bias"));
        assert_int_equal(index[1], -1);
    }
}

TEST_IN_FOLDER(lists_what_does_not_fit) {
    char names[12][16];
    named wanted[12];
    int index[12] = {7};
    scoped_safetensors file =
        file_with(f, (named[]){{"w0", 1}, {"layer.x", 1}, {"layer.y", 1}}, 3, 0);
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        wanted[i] = (named){names[i], 1};
    }
    expect_failure(f->ctx, match(f, file, wanted, 12, index), WF_SHAPE,
                   "m.safetensors does not fit the model: 11 names are missing: w1, w2, w3, w4, "
                   "w5, w6, w7, w8, w9, w10, ..., 2 are unexpected: layer.x, layer.y");
    assert_int_equal(index[0], 7); /* outputs are written only on success */
}

TEST_IN_FOLDER(compares_sizes) {
    int index[1];
    scoped_safetensors file = file_with(f, (named[]){{"module.a", 4}}, 1, 0);
    expect_failure(f->ctx, match(f, file, (named[]){{"a", 5}}, 1, index), WF_SHAPE,
                   "tensor module.a is F32 [4], but the model's a is F32 [5]");
    expect_failure(f->ctx, match(f, file, (named[]){{"a", -1}}, 1, index), WF_SHAPE,
                   "tensor module.a is F32 [4], but the model's a is I64 []");
}

/* A data set's fingerprint: the same for the same samples, another for any other.
 *
 * label: serial
 */
#include "data_folder.h"

static void hash_of(wf_context *ctx, const wf_data_config *config,
                    char hex_out[WF_DATA_HASH_BYTES]) {
    wf_data *data;
    assert_int_equal(wf_data_open(ctx, config, &data), WF_OK);
    assert_int_equal(wf_data_hash(data, hex_out), WF_OK);
    assert_int_equal(strlen(hex_out), WF_DATA_HASH_BYTES - 1);
    wf_data_close(data);
}

static void text_hash(folder *f, const char *name, const char *text, wf_data_text kind,
                      char hex_out[WF_DATA_HASH_BYTES]) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = folder_write(f, name, text, strlen(text));
    config.kind = WF_DATA_TOKENS;
    config.text = kind;
    config.n_tokens = 2;
    hash_of(f->ctx, &config, hex_out);
}

TEST_IN_FOLDER(of_texts) {
    char first[WF_DATA_HASH_BYTES], other[WF_DATA_HASH_BYTES];
    for (int kind = WF_TEXT_BYTES; kind <= WF_TEXT_WORDS; kind++) {
        text_hash(f, "a", "to be or not to be that is", (wf_data_text)kind, first);
        text_hash(f, "b", "to be or not to be that is", (wf_data_text)kind, other);
        assert_string_equal(first, other);
        text_hash(f, "a", "to be or not to be that to", (wf_data_text)kind, other);
        assert_string_not_equal(first, other);
        text_hash(f, "a", "to be or not to be that is so", (wf_data_text)kind, other);
        assert_string_not_equal(first, other);
    }
}

/* One training and one test file of two images of 2 x 2; `changed` is the byte that is 7. */
static void image_hash(folder *f, int changed, char hex_out[WF_DATA_HASH_BYTES]) {
    static const char *const stem[] = {"train", "t10k"};
    for (int s = 0; s < 2; s++) {
        unsigned char images[24] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1};
        unsigned char labels[10] = {0, 0, 8, 1, 0, 0, 0, 2, 1};
        char name[64];
        if (changed >= 0 && changed / 10 == s && changed % 10 < 8) images[16 + changed % 10] = 7;
        if (changed / 10 == s && changed % 10 >= 8) labels[changed % 10] = 7;
        snprintf(name, sizeof name, "%s-images-idx3-ubyte", stem[s]);
        folder_write(f, name, images, sizeof images);
        snprintf(name, sizeof name, "%s-labels-idx1-ubyte", stem[s]);
        folder_write(f, name, labels, sizeof labels);
    }
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = f->path;
    hash_of(f->ctx, &config, hex_out);
}

TEST_IN_FOLDER(of_images) {
    char first[WF_DATA_HASH_BYTES], other[WF_DATA_HASH_BYTES];
    image_hash(f, -1, first);
    image_hash(f, -1, other);
    assert_string_equal(first, other);
    for (int changed = 0; changed < 20; changed++) {
        image_hash(f, changed, other);
        assert_string_not_equal(first, other);
    }
}

TEST_IN_FOLDER(of_synthetic_samples) {
    char first[WF_DATA_HASH_BYTES], other[WF_DATA_HASH_BYTES];
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = "synthetic";
    hash_of(f->ctx, &config, first);
    config.seed = 1;
    hash_of(f->ctx, &config, other);
    assert_string_not_equal(first, other);
    config.seed = 0;
    config.n_synthetic++;
    hash_of(f->ctx, &config, other);
    assert_string_not_equal(first, other);
}

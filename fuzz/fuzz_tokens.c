/* Files of tokens and of text, as a language model is trained on. The first two bytes say how the
 * file, which is what follows, is read. All samples of what is accepted have tokens of the
 * vocabulary. */
#include "base/base.h"
#include "data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { MOST_TOKENS = 8, MOST_SAMPLES = 256 };

static void read_samples(const wf_data *data) {
    const wf_data_description *about = wf_data_describe(data);
    const int64_t n[2] = {about->n_train, about->n_test};
    int32_t x[MOST_TOKENS], y[MOST_TOKENS];
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < n[split] && i < MOST_SAMPLES; i++) {
            /* From both ends, where mistakes are. */
            const wfi_sample sample = {
                .split = (wf_data_split)split,
                .index = i % 2 ? n[split] - 1 - i / 2 : i / 2,
            };
            if (data->source->fill(data, &sample, x, y) != WF_OK) abort();
            for (int64_t k = 0; k < about->n_tokens; k++)
                if (x[k] < 0 || x[k] >= about->n_classes || y[k] < -1 || y[k] >= about->n_classes)
                    abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    static const wf_data_format formats[] = {WF_FORMAT_AUTO, WF_FORMAT_TEXT, WF_FORMAT_TOKENS,
                                             WF_FORMAT_BYTES};
    char path[32], hash[WF_DATA_HASH_BYTES];
    wf_context *ctx;
    wf_data *data;
    if (n_bytes < 2) return 0;
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.kind = WF_DATA_TOKENS;
    config.format = formats[bytes[0] % 4];
    config.text = bytes[0] & 4 ? WF_TEXT_WORDS : WF_TEXT_BYTES;
    config.n_tokens = 1 + bytes[1] % MOST_TOKENS;
    for (int split = 0; split < 2; split++) config.n_streams[split] = bytes[1] >> 6;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    config.name = path;
    bool is_written = write(fd, bytes + 2, n_bytes - 2) == (ssize_t)n_bytes - 2;
    if (is_written && wf_context_create(NULL, &ctx) == WF_OK) {
        if (wf_data_open(ctx, &config, &data) == WF_OK) {
            read_samples(data);
            if (wf_data_hash(data, hash) != WF_OK) abort();
            wf_data_close(data);
        } else if (!*wf_context_error(ctx)) {
            abort(); /* no refusal without a sentence */
        }
        if (wf_context_memory(ctx).n_live) abort();
        wf_context_destroy(ctx);
    }
    close(fd);
    return 0;
}

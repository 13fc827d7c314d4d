/* weft convert: weights in another type, or in shards. */
#include "common/text.h"
#include "job/report.h"

exit_status run_convert(cli *c) {
    const options *o = &c->o;
    wf_convert_config config = WF_CONVERT_CONFIG_INIT;
    char dtype[TEXT_BYTES], bytes[TEXT_BYTES];
    int n_tensors;
    uint64_t n_bytes;
    if (!o->init) return complain(EXIT_USAGE, "--init is missing: the weights to convert");
    if (!o->out) return complain(EXIT_USAGE, "--out is missing: the file to write");
    if (option_is_given(o, OPT_file_dtype)) config.dtype = option_text(o, OPT_file_dtype, dtype);
    config.shard_bytes = o->shard_size;
    TRY(complain_of(
        c, wf_safetensors_convert(c->ctx, o->init, o->out, &config, &n_tensors, &n_bytes)));
    say(c, "%d tensors, %s: %s\n", n_tensors, text_of_bytes(bytes, (double)n_bytes), o->out);
    return report_write(
        c, json_pack("{s:i, s:I}", "tensors", n_tensors, "bytes", (json_int_t)n_bytes));
}

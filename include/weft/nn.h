/* Layers: functions that declare parameters by name and apply an op.
 *
 * Names, shapes and initial values of parameters are PyTorch's.
 */
#ifndef WEFT_NN_H
#define WEFT_NN_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `name`.weight [n_out, n_in] and `name`.bias [n_out], both uniform in +-1/sqrt(n_in). */
WF_API wf_tensor wf_linear(wf_tensor x, const char *name, int64_t n_out);

/* GPT-2's Conv1D: `name`.weight [n_in, n_out] normal(0, std), `name`.bias zero. */
WF_API wf_tensor wf_linear_in_out(wf_tensor x, const char *name, int64_t n_out, float std);

/* `name`.weight [n_out, n_in / groups, kernel, kernel], normal with variance 2 / (n_out kernel^2).
 * Without bias, as a batch norm follows. */
WF_API wf_tensor wf_conv2d(wf_tensor x, const char *name, int64_t n_out, int64_t kernel,
                           wf_conv2d_shape shape);

/* x [n, c, h, w] or [n, c]. `name`.weight = 1, .bias = 0, eps 1e-5. The buffers are .running_mean,
 * .running_var (unbiased, momentum 0.1) and .num_batches_tracked. */
WF_API wf_tensor wf_batch_norm(wf_tensor x, const char *name);

/* `name`.weight = 1, .bias = 0; eps 1e-5. */
WF_API wf_tensor wf_layer_norm(wf_tensor x, const char *name);
WF_API wf_tensor wf_rms_norm(wf_tensor x, const char *name, float eps);

/* `name`.weight [n_rows, n], normal(0, std); ids I32 [...] -> [..., n]. */
WF_API wf_tensor wf_embedding(wf_tensor ids, const char *name, int64_t n_rows, int64_t n,
                              float std);

/* Layer `layer`, from 0, of an LSTM: x [n, tokens, in] -> [n, tokens, hidden]. The parameters are
 * `name`.weight_ih_l0 [4 hidden, in], .weight_hh_l0 [4 hidden, hidden], .bias_ih_l0 and .bias_hh_l0
 * [4 hidden], with the number of the layer in place of 0. Their rows are input gate, forget gate,
 * cell and output gate, all uniform in +-1/sqrt(hidden). A sample continues with the hidden state
 * of the same sample in the previous batch; gradients end at the beginning of the batch. Training
 * steps and forward runs have separate hidden states, which wf_trainer_reset_hidden resets to zero.
 */
WF_API wf_tensor wf_lstm(wf_tensor x, const char *name, int layer, int64_t hidden);

#ifdef __cplusplus
}
#endif
#endif

/* Layers: functions that declare their parameters by name and apply an op.
 * Parameter names, shapes and initial values are PyTorch's.
 */
#ifndef WEFT_NN_H
#define WEFT_NN_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `name`.weight [n_out, n_in], `name`.bias [n_out], both uniform in +-1/sqrt(n_in). */
WF_API wf_tensor wf_linear(wf_tensor x, const char *name, int64_t n_out);

/* `name`.weight [n_in, n_out] normal(0, std), `name`.bias zero: GPT-2's Conv1D. */
WF_API wf_tensor wf_linear_in_out(wf_tensor x, const char *name, int64_t n_out, float std);

/* `name`.weight [n_out, n_in / groups, kernel, kernel], normal with variance
 * 2 / (n_out kernel^2); no bias (a batch norm follows). */
WF_API wf_tensor wf_conv2d(wf_tensor x, const char *name, int64_t n_out, int64_t kernel,
                           wf_conv2d_shape shape);

/* x [n, c, h, w] or [n, c]. `name`.weight = 1, .bias = 0, and the buffers .running_mean,
 * .running_var (unbiased, momentum 0.1), .num_batches_tracked; eps 1e-5. */
WF_API wf_tensor wf_batch_norm(wf_tensor x, const char *name);

/* `name`.weight = 1, .bias = 0; eps 1e-5. */
WF_API wf_tensor wf_layer_norm(wf_tensor x, const char *name);

/* `name`.weight [n_rows, n], normal(0, std); ids I32 [...] -> [..., n]. */
WF_API wf_tensor wf_embedding(wf_tensor ids, const char *name, int64_t n_rows, int64_t n,
                              float std);

/* Layer `layer`, counted from 0, of an LSTM: x [n, tokens, in] -> [n, tokens, hidden]. Parameters
 * `name`.weight_ih_l0 [4 hidden, in], .weight_hh_l0 [4 hidden, hidden], .bias_ih_l0 and .bias_hh_l0
 * [4 hidden] (rows: input gate, forget gate, cell, output gate), all uniform in +-1/sqrt(hidden). A
 * sample goes on from where the same sample of the batch before has ended, and gradients go back no
 * further than to the begin of the batch. Steps have one hidden state, forward runs have another
 * one; wf_trainer_reset_hidden says when each begins with zeros. */
WF_API wf_tensor wf_lstm(wf_tensor x, const char *name, int layer, int64_t hidden);

#ifdef __cplusplus
}
#endif
#endif

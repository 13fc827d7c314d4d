/* The ready-made models. Each is a wf_model_function; its config is a wf_model_config with all
 * fields that the model reads set. Private. */
#pragma once

#include <stdbool.h>
#include <weft/model.h>

void wfi_model_mlp(wf_graph *g, const void *config);
void wfi_model_resnet18(wf_graph *g, const void *config);
void wfi_model_resnet34(wf_graph *g, const void *config);
void wfi_model_resnet50(wf_graph *g, const void *config);
void wfi_model_gpt2(wf_graph *g, const void *config);
void wfi_model_llama(wf_graph *g, const void *config);
void wfi_model_lstm(wf_graph *g, const void *config);

/* The inputs of a transformer: tokens, and their positions where it generates, else inert. Returns
 * whether samples are short enough; if not, the graph has failed. */
bool wfi_model_read_tokens(wf_graph *g, const wf_model_config *c, wf_tensor *ids_out,
                           wf_tensor *position_out);
/* Its end: logits, and their loss against input "y" unless it generates. */
void wfi_model_predict_tokens(wf_tensor logits, const wf_model_config *c);
/* The end of every image classifier: logits [n, n_classes] against input "y". */
void wfi_model_classify(wf_tensor logits, const wf_model_config *config);

/* Flat vectors in and out of the memory of a trainer with one rank. Private. */
#pragma once

#include "api/trainer.h"
#include "workers/vector.h"

typedef enum wfi_image {
    WFI_IMAGE_PARAMETERS, /* floats: the vector */
    WFI_IMAGE_GRADIENTS,  /* the same; of the latest wf_trainer_gradients */
    WFI_IMAGE_STATES,     /* the vector once for each of the optimizer's states */
    WFI_IMAGE_BUFFERS     /* bytes: all buffers */
} wfi_image;

/* Returns the bytes of an image. */
size_t wfi_image_bytes(const wfi_vector *l, wfi_image image);
/* Copies elements `first` to `end` of the vector, for STATES of state `state`; all of BUFFERS.
 * `reads`: to `host`, otherwise from it. The trainer is idle. Errors: DEVICE. */
wf_status wfi_image_move(const wf_trainer *t, const wfi_vector *l, wfi_image image, int state,
                         size_t first, size_t end, void *host, bool reads);
/* Copies the batch statistics of the latest run, wfi_vector_all_stats floats. */
wf_status wfi_image_read_stats(const wf_trainer *t, const wfi_vector *l, float *to);

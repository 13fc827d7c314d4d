/* A step of a case: the work of its stages, and the time of what is not compute. Private. */
#pragma once

#include "cluster/predict.h"

/* A step of a case: the work of its stages, and the device that has the most. */
typedef struct wfi_case_step {
    wfi_predictor *p;
    const wfi_case *c;
    const wfi_model_work *w;
    const wfi_stage_work *stages;
    int device;     /* with the most work */
    double work_us; /* of that device and all its microbatches */
    double n_used;  /* the most parameters of a device: it ends the step last */
} wfi_case_step;

/* Phases, as bits. */
enum {
    WFI_IN_F = 1 << WFI_F,
    WFI_IN_R = 1 << WFI_R,
    WFI_IN_B = 1 << WFI_B,
    WFI_IN_W = 1 << WFI_W,
    WFI_IN_ALL = WFI_IN_F | WFI_IN_R | WFI_IN_B | WFI_IN_W
};

/* The sum over the stages of a device, of one microbatch. */
double wfi_step_us(const wfi_case_step *s, int device, unsigned phases);
double wfi_step_flops(const wfi_case_step *s, int device, unsigned phases);
/* The share of tensor-parallel sums that compute does not hide, by wfi_phase; and the time of a
 * device's sums. */
double wfi_step_exposed(const wfi_case_step *s, int phase);
double wfi_step_sums_us(const wfi_case_step *s, int device);
/* The gathers of zero=3: sets them in the stages; the sum over the stages of a device. */
void wfi_step_add_gathers(const wfi_case_step *s, wfi_stage_work *stages);
double wfi_step_gathers_us(const wfi_case_step *s, int device);
/* Outputs of the whole batch, which the root of dataparallel gathers for the loss. */
double wfi_step_output_bytes(const wfi_case_step *s);
/* Times of a step: sums over replicas; sums of tied weights; a transfer between stages; the update;
 * moves to and from other memory. */
double wfi_step_dp_us(const wfi_case_step *s);
double wfi_step_tied_us(const wfi_case_step *s);
double wfi_step_transfer_us(const wfi_case_step *s);
double wfi_step_optimizer_us(const wfi_case_step *s);
double wfi_step_offload_us(const wfi_case_step *s);

#include "plan/schedule/zero_bubble.h"

void wfi_zero_bubble(int stage, int n_micro, int n_warm, int n_late, wfi_action_list *list) {
    int f = 0, w = 0;
    while (f < n_warm && f < n_micro) wfi_action_push(list, WFI_ACTION_F, stage, f++);
    for (int b = 0; b < n_micro; b++) {
        wfi_action_push(list, WFI_ACTION_B, stage, b);
        if (b >= n_late) wfi_action_push(list, WFI_ACTION_W, stage, w++);
        if (f < n_micro) wfi_action_push(list, WFI_ACTION_F, stage, f++);
    }
    while (w < n_micro) wfi_action_push(list, WFI_ACTION_W, stage, w++);
}

#include "plan/schedule/auto.h"
wf_status wfi_auto_improve(wfi_auto *a) {
    (void)a;
    return WF_OK;
}

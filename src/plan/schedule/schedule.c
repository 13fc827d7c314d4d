#include "plan/schedule/schedule.h"

#include <stddef.h>
#include <string.h>

const wfi_schedule *const wfi_schedules[] = {&wfi_schedule_gpipe, &wfi_schedule_1f1b, NULL};

const wfi_schedule *wfi_schedule_find(const char *name) {
    for (int i = 0; wfi_schedules[i]; i++)
        if (!strcmp(wfi_schedules[i]->name, name)) return wfi_schedules[i];
    return NULL;
}

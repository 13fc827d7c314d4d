/* The cores of a rank: the cores that this process may use are divided evenly, so that neighbours
 * in the machine's topology stay together. */
#include "device/device.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

static wf_status divide(wfi_device *device, hwloc_topology_t topology, cpu_set_t *cores) {
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    if (!allowed) return wfi_no_memory(device->owner.ctx, sizeof *cores, "a set of cores");
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) || hwloc_bitmap_iszero(allowed))
        hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
    int n_pus = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_PU);
    int n_places = device->n_places > 0 ? device->n_places : 1;
    int share = n_pus / n_places > 1 ? n_pus / n_places : 1;
    CPU_ZERO(cores);
    for (int k = 0; k < share; k++) {
        /* If there are more devices than cores, devices share cores. */
        int at = (device->place * share + k) % (n_pus > 0 ? n_pus : 1);
        hwloc_obj_t pu =
            hwloc_get_obj_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_PU, (unsigned)at);
        if (pu && pu->os_index < CPU_SETSIZE) CPU_SET(pu->os_index, cores);
    }
    hwloc_bitmap_free(allowed);
    return WF_OK;
}

wf_status wfi_cpu_find_cores(wfi_device *device) {
    hwloc_topology_t topology;
    cpu_set_t *cores = wfi_alloc(device->owner.ctx, 1, sizeof *cores, "a set of cores");
    if (!cores) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    if (hwloc_topology_init(&topology)) {
        status = wfi_fail(device->owner.ctx, WF_DEVICE, "hwloc could not be started");
    } else {
        /* Only processors matter here; loading other objects takes time. */
        hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
        if (hwloc_topology_load(topology))
            status = wfi_fail(device->owner.ctx, WF_DEVICE,
                              "hwloc could not read the machine's topology");
        else
            status = divide(device, topology, cores);
        hwloc_topology_destroy(topology);
    }
    if (status != WF_OK) {
        wfi_free(device->owner.ctx, cores);
        return status;
    }
    device->state = cores;
    return WF_OK;
}

void wfi_cpu_release_cores(wfi_device *device) {
    wfi_free(device->owner.ctx, device->state);
}

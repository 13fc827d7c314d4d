/* Orders: lists of them, and how the host's thread gives one to the courier's. */
#include "comm/courier/parts.h"

void wfi_order_put(wfi_order_list *list, wfi_order *order) {
    order->next = NULL;
    if (list->last)
        list->last->next = order;
    else
        list->first = order;
    list->last = order;
}

wfi_order *wfi_order_take(wfi_order_list *list) {
    wfi_order *first = list->first;
    if (!first) return NULL;
    list->first = first->next;
    if (!list->first) list->last = NULL;
    return first;
}

void wfi_courier_reuse(wfi_courier *c, wfi_order *order) {
    pthread_mutex_lock(&c->lock);
    wfi_order_put(&c->unused, order);
    pthread_mutex_unlock(&c->lock);
}

void wfi_courier_free_orders(wfi_courier *c, wfi_order_list *list) {
    for (wfi_order *order; (order = wfi_order_take(list)) != NULL;) wfi_free(c->own, order);
}

void wfi_courier_wake(wfi_courier *c) {
    if (c->sleeps) pthread_cond_signal(&c->changed);
}

wf_status wfi_courier_give(wfi_courier *c, const wfi_order *what) {
    pthread_mutex_lock(&c->lock);
    wfi_order *order = wfi_order_take(&c->unused);
    pthread_mutex_unlock(&c->lock);
    if (!order) order = wfi_alloc(c->own, 1, sizeof *order, "an order of the courier");
    if (!order) return wfi_no_memory(c->ctx, sizeof *order, "an order of the courier");
    *order = *what;
    pthread_mutex_lock(&c->lock);
    wfi_order_put(&c->orders, order);
    wfi_courier_wake(c);
    pthread_mutex_unlock(&c->lock);
    return WF_OK;
}

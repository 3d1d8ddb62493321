/* SPDX-License-Identifier: MIT
 *
 * Parallel regions that are open to threads that wait.
 *
 * A place holds a region and counts its visitors. A visitor first counts itself
 * and then reads the region; the owner first removes the region and then waits
 * until no visitor is left. All of these accesses are sequentially consistent,
 * so either the visitor finds no region, or the owner waits for it. */
#include "tensor/work_stealing.h"

#include "base/cores.h"
#include "tensor/backends/cpu/runtime/shares.h"

#include <sched.h>

enum { PLACES = 64 };

struct sl__open_place {
    _Alignas(64) _Atomic(sl__team_work *) region;
    atomic_bool spent; /* a visitor found nothing left */
    atomic_int visitors;
    atomic_bool taken; /* until its region is closed */
};

static sl__open_place places[PLACES];
static atomic_int places_used; /* no place from here on was ever used */
static atomic_int thieves;

void sl__stealing_start(void)
{
    atomic_fetch_add(&thieves, 1);
}

void sl__stealing_stop(void)
{
    atomic_fetch_sub(&thieves, 1);
}

bool sl__someone_steals(void)
{
    return atomic_load_explicit(&thieves, memory_order_relaxed) > 0;
}

/* ----------------------------------------------------------------- open -- */

static void note_used(int count)
{
    int before = atomic_load_explicit(&places_used, memory_order_relaxed);
    while (before < count &&
           !atomic_compare_exchange_weak(&places_used, &before, count))
        ;
}

sl__open_place *sl__open(sl__team_work *region)
{
    static _Thread_local int usual; /* the place that this thread used last */
    for (int i = 0; i < PLACES; i++) {
        int at = (usual + i) % PLACES;
        sl__open_place *place = &places[at];
        if (atomic_load_explicit(&place->taken, memory_order_relaxed) ||
            atomic_exchange(&place->taken, true))
            continue;
        usual = at;
        note_used(at + 1);
        atomic_store_explicit(&place->spent, false, memory_order_relaxed);
        atomic_store(&place->region, region);
        return place;
    }
    return NULL;
}

void sl__close(sl__open_place *place)
{
    if (!place)
        return;
    atomic_store(&place->region, NULL);
    /* A visitor is in its last chunk, unless it has lost its core. */
    for (int i = 0; atomic_load(&place->visitors) > 0; i++) {
        if (i < 10000)
            sl__pause();
        else
            sched_yield();
    }
    atomic_store(&place->taken, false);
}

/* ---------------------------------------------------------------- visit -- */

/* The threads of one rank that waits. */
typedef struct visit {
    bool (*is_over)(void *wait);
    void *wait;
    int first; /* place to look at */
    atomic_int arrived;
    atomic_bool over;
    atomic_bool helped;
} visit;

static bool has_work(sl__open_place *place)
{
    return atomic_load_explicit(&place->region, memory_order_relaxed) &&
           !atomic_load_explicit(&place->spent, memory_order_relaxed);
}

/* Thread 0 of the visit asks, for all of them. */
static bool has_ended(visit *v, int who)
{
    if (who == 0 && v->is_over(v->wait))
        atomic_store(&v->over, true);
    return atomic_load(&v->over);
}

/* A number that no other visitor has; -1 if there is memory for no more
 * workers. */
static int take_number(sl__team_work *region)
{
    unsigned long long all = ~0ull >> (SL__THIEVES_MAX - region->thieves_max);
    unsigned long long before = atomic_load(&region->thieves);
    while (~before & all) {
        int number = __builtin_ctzll(~before & all);
        if (atomic_compare_exchange_weak(&region->thieves, &before,
                                         before | 1ull << number))
            return number;
    }
    return -1;
}

/* Takes chunks of all shares. True if it stopped because none was left. */
static bool take_chunks(visit *v, sl__team_work *region, int number, int who)
{
    for (int i = 0; i < region->share_count; i++) {
        int share = (who + i) % region->share_count;
        while (sl__take(region, share, region->threads + number)) {
            atomic_store_explicit(&v->helped, true, memory_order_relaxed);
            if (has_ended(v, who))
                return false;
        }
    }
    return true;
}

static void take_part(visit *v, sl__open_place *place, int who)
{
    atomic_fetch_add(&place->visitors, 1);
    sl__team_work *region = atomic_load(&place->region);
    int number = region ? take_number(region) : -1;
    if (number >= 0) {
        if (take_chunks(v, region, number, who))
            atomic_store_explicit(&place->spent, true, memory_order_relaxed);
        atomic_fetch_and(&region->thieves, ~(1ull << number));
    }
    atomic_fetch_sub(&place->visitors, 1);
}

static void visit_all(void *data)
{
    visit *v = data;
    int who = atomic_fetch_add(&v->arrived, 1);
    int used = atomic_load_explicit(&places_used, memory_order_relaxed);
    for (int i = 0; i < used && !has_ended(v, who); i++) {
        sl__open_place *place = &places[(v->first + i) % used];
        if (has_work(place))
            take_part(v, place, who);
    }
    if (who == 0)
        atomic_store(&v->over, true); /* From here on, no thread asks. */
}

bool sl__can_steal(void)
{
    int used = atomic_load_explicit(&places_used, memory_order_relaxed);
    for (int i = 0; i < used; i++) {
        if (has_work(&places[i]))
            return true;
    }
    return false;
}

bool sl__steal(int threads, bool (*is_over)(void *wait), void *wait)
{
    static _Thread_local int next; /* where to begin, so that all are helped */
    if (!sl__can_steal())
        return false;
    next = (next + 1) % PLACES;
    visit v = {.is_over = is_over, .wait = wait, .first = next};
    sl__on_team(threads, visit_all, &v);
    return atomic_load(&v.helped);
}

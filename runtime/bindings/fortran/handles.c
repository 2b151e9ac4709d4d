/*
 * The objects behind the handles of module cltrain. An object has a slot, and handles have the
 * slot's number. A slot counts its handles, and the slots whose objects need it: a trainer needs
 * its store, and the store its devices. Fortran finalises variables in any order, so an object is
 * freed when no handle and no other object needs it.
 *
 * A handle is only finalised if it was assigned at its address. Compilers copy handles without
 * assignment, and gfortran 12 finalises elements of lists in derived types at wrong addresses.
 */
#include "handles.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

/* Memory that lives as long as the object, such as names in its options; or, without `release`, the
 * number of an object that it needs. */
struct clt_f_kept {
    clt_f_kept *next;
    void *memory;
    clt_f_free_fn *release;
    int64_t needed;
};

typedef struct slot {
    void *object;
    int count; /* of an array of objects; 0: one object */
    clt_f_free_fn *destroy;
    clt_f_free_array_fn *destroy_array;
    int64_t generation; /* handles of earlier objects in this slot have other numbers */
    int64_t handles, users;
    int open; /* 0: destroyed by the program, maybe waiting for its users */
    int64_t *needs;
    int n_needs, room_needs;
    clt_f_kept *memory;
    int number; /* what the handle remembers: see clt_f_set_number */
    int next_free;
} slot;

/* The address of a handle that was assigned. */
typedef struct place {
    const void *handle;
    struct place *next;
} place;

/* Blocks stay where they are, because destroying an object must not hold the lock. */
static slot *blocks[4096];
static int n_slots, first_free = -1;
static int64_t live;
static place *places[4096];
static atomic_flag locked = ATOMIC_FLAG_INIT;

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire))
        ;
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&locked, memory_order_release);
}

static slot *at(int index)
{
    return &blocks[index / BLOCK][index % BLOCK];
}

/* Returns the slot of a number, or NULL if its object is gone. The caller holds the lock. */
static slot *find(int64_t id)
{
    const int64_t index = (id & 0xffffff) - 1;
    if (index < 0 || index >= n_slots)
        return NULL;
    slot *s = at((int)index);
    return s->generation == id >> 24 ? s : NULL;
}

static int new_slot(void)
{
    if (first_free >= 0) {
        const int index = first_free;
        first_free = at(index)->next_free;
        return index;
    }
    if (n_slots / BLOCK >= (int)(sizeof blocks / sizeof *blocks))
        return -1;
    if (n_slots % BLOCK == 0 && !(blocks[n_slots / BLOCK] = calloc(BLOCK, sizeof(slot))))
        return -1;
    return n_slots++;
}

int64_t clt_f_own(void *object, int count, clt_f_free_fn *destroy,
                  clt_f_free_array_fn *destroy_array)
{
    lock();
    const int index = new_slot();
    int64_t id = 0;
    if (index >= 0) {
        slot *s = at(index);
        const int64_t generation = s->generation + 1;
        *s = (slot){.object = object,
                    .count = count,
                    .destroy = destroy,
                    .destroy_array = destroy_array,
                    .generation = generation,
                    .open = 1};
        id = generation << 24 | (index + 1);
        live++;
    }
    unlock();
    if (!id) {
        (void)clt_error_set(CLT_OUT_OF_MEMORY, "there is no room for another handle");
        if (destroy)
            destroy(object);
        else if (destroy_array)
            destroy_array(object, count);
    }
    return id;
}

/* Without memory the needed object is counted all the same: it then lives to the end. */
static void remember_need(slot *s, int64_t needed)
{
    if (s->n_needs == s->room_needs) {
        const int room = s->room_needs ? 2 * s->room_needs : 4;
        int64_t *grown = realloc(s->needs, (size_t)room * sizeof *grown);
        if (!grown)
            return;
        s->needs = grown;
        s->room_needs = room;
    }
    s->needs[s->n_needs++] = needed;
}

void clt_f_need(int64_t id, int64_t needed)
{
    lock();
    slot *s = find(id), *other = find(needed);
    for (int i = 0; s && i < s->n_needs; i++)
        if (s->needs[i] == needed)
            other = NULL;
    if (s && other && s != other) {
        remember_need(s, needed);
        other->users++;
    }
    unlock();
}

static clt_f_kept *push(clt_f_kept **list, void *memory, clt_f_free_fn *release, int64_t needed)
{
    clt_f_kept *entry = malloc(sizeof *entry);
    if (entry) {
        *entry = (clt_f_kept){*list, memory, release, needed};
        *list = entry;
    }
    return entry;
}

void *clt_f_room(clt_f_kept **list, size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (memory && !push(list, memory, free, 0)) {
        free(memory);
        memory = NULL;
    }
    return memory;
}

void clt_f_push(clt_f_kept **list, void *memory, clt_f_free_fn *release)
{
    if (!push(list, memory, release, 0))
        release(memory);
}

/* Counts a user of an object, or takes one off. Returns 0 if the object is gone. */
static int use(int64_t id, int users)
{
    lock();
    slot *s = find(id);
    if (s)
        s->users += users;
    unlock();
    return s != NULL;
}

static void free_if_unused(int64_t id);

static void drop_need(int64_t id)
{
    if (use(id, -1))
        free_if_unused(id);
}

void clt_f_push_need(clt_f_kept **list, int64_t id)
{
    if (use(id, 1) && !push(list, NULL, NULL, id))
        drop_need(id);
}

static void free_kept(clt_f_kept *list)
{
    while (list) {
        clt_f_kept *next = list->next;
        if (list->needed)
            drop_need(list->needed);
        if (list->release)
            list->release(list->memory);
        free(list);
        list = next;
    }
}

void clt_f_hand_over(clt_f_kept **list, int64_t id)
{
    clt_f_kept *last = *list;
    for (clt_f_kept *k = *list; k; k = k->next) {
        if (id && k->needed) {
            clt_f_need(id, k->needed);
            drop_need(k->needed);
            k->needed = 0;
        }
        last = k;
    }
    lock();
    slot *s = find(id);
    if (s && last) {
        last->next = s->memory;
        s->memory = *list;
        *list = NULL;
    }
    unlock();
    free_kept(*list);
    *list = NULL;
}

void clt_f_set_number(int64_t id, int number)
{
    lock();
    slot *s = find(id);
    if (s)
        s->number = number;
    unlock();
}

int clt_f_number(int64_t id)
{
    lock();
    const slot *s = find(id);
    const int number = s ? s->number : 0;
    unlock();
    return number;
}

int64_t clt_f_lend(void *object)
{
    int64_t original = 0;
    int number = 0;
    lock();
    for (int i = 0; i < n_slots && !original; i++) {
        const slot *s = at(i);
        if (s->object == object && s->destroy && s->open && (s->handles > 0 || s->users > 0)) {
            original = s->generation << 24 | (i + 1);
            number = s->number;
        }
    }
    unlock();
    const int64_t id = clt_f_own(object, 0, NULL, NULL);
    clt_f_need(id, original);
    clt_f_set_number(id, number);
    return id;
}

/* Frees the object of a slot that nothing needs any more, then what it needed. */
static void free_if_unused(int64_t id)
{
    lock();
    slot *s = find(id), gone;
    if (!s || s->users > 0 || (s->open && s->handles > 0)) {
        unlock();
        return;
    }
    gone = *s;
    s->generation++; /* nobody finds it from here on */
    unlock();
    char message[1024]; /* of the call that ends, which nobody has read yet */
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (gone.destroy)
        gone.destroy(gone.object);
    if (gone.destroy_array)
        gone.destroy_array(gone.object, gone.count);
    free_kept(gone.memory);
    (void)clt_error_set(CLT_OK, message);
    lock();
    live--;
    s->next_free = first_free;
    first_free = (int)((id & 0xffffff) - 1);
    unlock();
    for (int i = 0; i < gone.n_needs; i++)
        drop_need(gone.needs[i]);
    free(gone.needs);
}

void clt_f_retain(int64_t id)
{
    lock();
    slot *s = find(id);
    if (s)
        s->handles++;
    unlock();
}

static place **find_place(const void *handle)
{
    place **at = &places[((uintptr_t)handle >> 4) * 2654435761U % (sizeof places / sizeof *places)];
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

int clt_f_share(const void *handle, int64_t id, const int64_t *old)
{
    if (!handle)
        return 2;
    place *fresh = malloc(sizeof *fresh);
    lock();
    place **at = find_place(handle);
    const int known = *at != NULL;
    if (!known && fresh) {
        *fresh = (place){handle, NULL};
        *at = fresh;
    }
    unlock();
    if (known)
        free(fresh);
    else if (!fresh)
        return 1;
    clt_f_retain(id);
    clt_f_release(*old);
    return 0;
}

int clt_f_end(const void *handle)
{
    lock();
    place **at = find_place(handle), *found = *at;
    if (found)
        *at = found->next;
    unlock();
    free(found);
    return found != NULL;
}

void clt_f_release(int64_t id)
{
    lock();
    slot *s = find(id);
    if (s)
        s->handles--;
    unlock();
    free_if_unused(id);
}

void clt_f_close(int64_t id)
{
    lock();
    slot *s = find(id);
    if (s)
        s->open = 0;
    unlock();
    free_if_unused(id);
}

int clt_f_is_open(int64_t id)
{
    lock();
    const slot *s = find(id);
    const int open = s && s->open;
    unlock();
    return open;
}

clt_status clt_f_stale(int64_t id, const char *call, const char *argument)
{
    char text[240];
    snprintf(text, sizeof text, "%s: %s %s", call, argument,
             id ? "was destroyed; its handle, and copies of it, cannot be used any more"
                : "is a handle that nothing was assigned to; create the object first");
    return clt_error_set(CLT_INVALID_ARGUMENT, text);
}

int64_t clt_f_live(void)
{
    lock();
    const int64_t n = live;
    unlock();
    return n;
}

clt_world *clt_f_world_new(void)
{
    clt_world *world = malloc(sizeof *world);
    if (world)
        clt_world_init(world);
    else
        (void)clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice for a world");
    return world;
}

void clt_f_world_free(clt_world *world)
{
    clt_world_close(world);
    free(world);
}

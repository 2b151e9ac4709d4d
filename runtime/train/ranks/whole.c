#include "train/ranks/whole.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/store/parts.h"

/* Bytes of a message between ranks. */
enum { PIECE = 4 << 20 };

clt_participants clt_whole_participants(const clt_store *store)
{
    const bool several = store->world.ranks > 1;
    return (clt_participants){.world = several ? &store->world : NULL,
                              .rank = several ? store->world.rank : 0,
                              .ranks = several ? store->world.ranks : 1,
                              .own = store->n_devices,
                              .first = store->first,
                              .total = store->total,
                              .begins = store->begins,
                              .mesh = store->mesh};
}

/* Whether the rank has a device at each place of an axis. */
static bool has_places(const clt_participants *all, int rank, clt_axis axis)
{
    for (int place = 0; place < all->mesh.size[axis]; place++) {
        int p = all->begins[rank];
        while (p < all->begins[rank + 1] && clt_mesh_coordinate(&all->mesh, axis, p) != place)
            p++;
        if (p == all->begins[rank + 1])
            return false;
    }
    return true;
}

bool clt_whole_spread(const clt_participants *all, const clt_store *store)
{
    const bool split = clt_buckets_split(store->replicas[0].layout);
    for (int r = 0; all->ranks > 1 && r < all->ranks; r++)
        if ((split && !has_places(all, r, clt_mesh_split_axis(&all->mesh))) ||
            (store->stages && !has_places(all, r, CLT_AXIS_PIPELINE)))
            return true;
    return false;
}

int clt_whole_source(const clt_participants *all, const clt_store *store)
{
    if (clt_whole_spread(all, store) || !clt_buckets_split(store->replicas[0].layout))
        return all->first;
    const clt_axis axis = clt_mesh_split_axis(&all->mesh);
    for (int p = all->first; p < all->first + all->own; p++) {
        int place = 0;
        for (; place < all->mesh.size[axis]; place++) {
            const int q = clt_mesh_neighbour(&all->mesh, axis, p, place);
            if (q < all->first || q >= all->first + all->own)
                break;
        }
        if (place == all->mesh.size[axis])
            return p;
    }
    return -1;
}

static int shards_of(const clt_store *store, int kind)
{
    return clt_kind_has_shards(kind) ? store->replicas[0].shards : 1;
}

bool clt_whole_is_apart(const clt_participants *all, const clt_store *store, int kind,
                        const clt_slot *slot)
{
    return all->ranks > 1 &&
           (shards_of(store, kind) > 1 ||
            ((slot->sharding.blocks || store->stages) && clt_whole_spread(all, store)));
}

/* --- collecting ------------------------------------------------------------------------------ */

/* A tensor that is collected. Each rank sends a stream: what its participants have, one after the
 * other. */
typedef struct job {
    const clt_participants *all;
    const clt_store *store;
    int kind, shards;
    const clt_slot *slot;
} job;

/* What a participant sends. Of several that have the same bytes the first sends. */
static clt_held sent_by(const job *j, int participant)
{
    const clt_mesh *mesh = &j->all->mesh;
    const clt_axis split = clt_mesh_split_axis(mesh);
    clt_coordinate at = {0, mesh->size[split]};
    int stage = 0;
    const int shard = j->shards > 1 ? clt_participants_replica(j->all, participant) : 0;
    for (int a = 0; a < CLT_AXES; a++) {
        const int place = clt_mesh_coordinate(mesh, (clt_axis)a, participant);
        if (a == (int)split && j->slot->sharding.blocks) {
            at.place = place;
        } else if (a == CLT_AXIS_PIPELINE) {
            stage = place;
            if (j->slot->stages & ((1ull << place) - 1)) /* an earlier stage has it */
                return (clt_held){.at = at};
        } else if (place && (!clt_axis_has_samples((clt_axis)a) || j->shards == 1))
            return (clt_held){.at = at};
    }
    return clt_store_held(j->store, j->slot, at, stage, shard, j->shards);
}

static int64_t longest_stream(const job *j)
{
    int64_t most = 0;
    for (int r = 0; r < j->all->ranks; r++) {
        int64_t bytes = 0;
        for (int p = j->all->begins[r]; p < j->all->begins[r + 1]; p++)
            bytes += sent_by(j, p).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Goes through the bytes [from, from + bytes) of a rank's stream, which `data` holds: puts them
 * into the whole tensor, or, if `whole` is NULL, reads them from this rank's devices. */
static clt_status pass(const job *j, int rank, int64_t from, int64_t bytes, char *data, void *whole)
{
    int64_t stream = 0;
    for (int p = j->all->begins[rank]; p < j->all->begins[rank + 1]; p++) {
        const clt_held h = sent_by(j, p);
        const int64_t begin = from > stream ? from : stream;
        const int64_t all = stream + h.bytes, end = from + bytes < all ? from + bytes : all;
        const int64_t skipped = begin - stream;
        stream = all;
        if (begin >= end)
            continue;
        if (whole) {
            clt_part_put(j->slot, h.at, h.from + skipped, end - begin, data + (begin - from),
                         whole);
            continue;
        }
        const int device = p - j->all->first;
        CLT_TRY(clt_replica_read(&j->store->replicas[device],
                                 clt_store_buffer(j->store, device, j->kind, j->slot),
                                 h.offset + skipped, end - begin, data + (begin - from)));
    }
    return CLT_OK;
}

/* A rank that cannot read its part goes on exchanging, so that no other waits for it. */
static clt_status exchange(const job *j, int64_t most, char *mine, void *whole)
{
    const clt_participants *all = j->all;
    clt_status status = CLT_OK;
    for (int64_t at = 0; at < most; at += PIECE) {
        const int64_t bytes = most - at < PIECE ? most - at : PIECE;
        void *told;
        CLT_NEXT(status, pass(j, all->rank, at, bytes, mine, NULL));
        CLT_TRY(clt_ranks_gather(all->world, mine, (size_t)bytes, &told));
        for (int r = 0; r < all->ranks && whole; r++)
            pass(j, r, at, bytes, (char *)told + r * bytes, whole);
        clt_free(told);
    }
    return clt_world_agree(all, status);
}

clt_status clt_whole_collect(const clt_participants *all, const clt_store *store, int kind,
                             const clt_slot *slot, void *whole)
{
    const job j = {all, store, kind, shards_of(store, kind), slot};
    const int64_t most = longest_stream(&j);
    char *mine = clt_calloc((size_t)(most < PIECE ? most : PIECE) + 1, 1);
    clt_status status = clt_world_agree(all, mine ? CLT_OK : CLT_OUT_OF_MEMORY);
    CLT_NEXT(status, exchange(&j, most, mine, whole));
    clt_free(mine);
    return status;
}

/* --- leading and following ------------------------------------------------------------------- */

/* A request of rank 0 as a number: END, or the kind of request, of tensor, and the tensor. */
enum { END = -1, COLLECT = 0, TELL = 1, KINDS = CLT_MAX_OPTIMIZER_SLOTS - CLT_AVERAGES };

static clt_status ask(const clt_participants *all, int request, int kind, int tensor)
{
    int64_t number = ((int64_t)tensor * KINDS + kind - CLT_AVERAGES) * 2 + request;
    return clt_ranks_agree(all->world, CLT_OK, &number);
}

/* Gives rank 0's tensor to all ranks. The others receive it in `whole`; rank 0's may be read-only.
 */
static clt_status tell(const clt_participants *all, const clt_store *store, int kind,
                       const clt_slot *slot, char *whole)
{
    for (int64_t at = 0; at < slot->bytes; at += PIECE) {
        const int64_t bytes = slot->bytes - at < PIECE ? slot->bytes - at : PIECE;
        void *told;
        CLT_TRY(clt_ranks_gather(all->world, whole + at, (size_t)bytes, &told));
        if (all->rank)
            memcpy(whole + at, told, (size_t)bytes);
        clt_free(told);
    }
    return clt_world_agree(all, clt_store_write(store, kind, slot, whole));
}

clt_status clt_whole_get(const clt_participants *all, const clt_store *store, int kind,
                         const clt_slot *slot, void *whole)
{
    if (!clt_whole_is_apart(all, store, kind, slot))
        return clt_store_read(store, kind, slot, whole);
    CLT_TRY(ask(all, COLLECT, kind, (int)(slot - store->layout.slots)));
    return clt_whole_collect(all, store, kind, slot, whole);
}

clt_status clt_whole_set(const clt_participants *all, const clt_store *store, int kind,
                         const clt_slot *slot, const void *whole)
{
    CLT_TRY(ask(all, TELL, kind, (int)(slot - store->layout.slots)));
    CLT_TRY(clt_world_agree(all, CLT_OK)); /* the other ranks have memory */
    return tell(all, store, kind, slot, (char *)whole);
}

clt_status clt_whole_end(const clt_participants *all, clt_status status)
{
    int64_t number = END;
    return clt_ranks_agree(all->world, status, &number);
}

static clt_status receive(const clt_participants *all, const clt_store *store, int kind,
                          const clt_slot *slot)
{
    char *whole = clt_alloc((size_t)slot->bytes);
    clt_status status = clt_world_agree(all, whole ? CLT_OK : CLT_OUT_OF_MEMORY);
    CLT_NEXT(status, tell(all, store, kind, slot, whole));
    clt_free(whole);
    return status;
}

/* After a failure, which all ranks learn, rank 0 still calls clt_whole_end. */
clt_status clt_whole_follow(const clt_participants *all, const clt_store *store)
{
    clt_status status = CLT_OK;
    for (;;) {
        int64_t number = END;
        const clt_status agreed = clt_ranks_agree(all->world, status, &number);
        if (number == END)
            return agreed;
        const clt_slot *slot = &store->layout.slots[number / 2 / KINDS];
        const int kind = (int)(number / 2 % KINDS) + CLT_AVERAGES;
        if (agreed == CLT_OK)
            status = number % 2 == TELL ? receive(all, store, kind, slot)
                                        : clt_whole_collect(all, store, kind, slot, NULL);
    }
}

clt_status clt_store_collect(clt_store *store, const char *name, void *data, size_t bytes)
{
    const clt_participants all = clt_whole_participants(store);
    const clt_slot *slot;
    CLT_TRY(clt_store_sized(store, name, bytes, &slot));
    if (clt_whole_is_apart(&all, store, CLT_VALUES, slot))
        return clt_whole_collect(&all, store, CLT_VALUES, slot, data);
    CLT_TRY(clt_slot_check_data(slot, data));
    return clt_store_read(store, CLT_VALUES, slot, data);
}

#include "comm/mpi/bridge.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DATA = 1, NOTICE = 2, NOTICE_BYTES = 512, MOST_DRAINED = 4096 };

struct clt_mpi_bridge {
    MPI_Comm leaders; /* the first ranks of all nodes; MPI_COMM_NULL on other ranks */
    int node, nodes;
    int *first;            /* by node: the number of its leader in messages */
    MPI_Request *requests; /* by node: receives, then sends; of a transfer: by message */
    uint64_t *waits;       /* by request: the node from which it receives, as a bit */
    int *ended;            /* numbers of ended requests, and their statuses */
    MPI_Status *statuses;
    int count, room; /* requests of this call; room of the arrays */
    bool collective; /* the requests belong to a collective of MPI, which cannot be cancelled */
    _Atomic uint64_t missing;
    atomic_bool busy;
    /* Notices, by node: sends of this node's, and receives of the others'. */
    MPI_Request *told, *hears;
    char *heard;
    char notice[NOTICE_BYTES];
};

/* Cancels or ends a request. MPI_Wait might wait for a message that never comes. */
static int withdraw(MPI_Request *request, bool receives)
{
    enum { LOOKS = 1000 };
    int done = *request == MPI_REQUEST_NULL;
    if (!done && receives)
        MPI_Cancel(request);
    for (int looks = 0; !done && looks < LOOKS; looks++)
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
    return done;
}

/* Messages that come later must not be written to the caller's memory. */
static void cancel(void *user)
{
    clt_mpi_bridge *b = user;
    for (int i = 0; i < b->count; i++)
        if (!withdraw(&b->requests[i], b->waits[i] && !b->collective))
            atomic_store(&b->busy, true);
}

static clt_status test(void *user, int *done)
{
    clt_mpi_bridge *b = user;
    int ended = 0;
    uint64_t missing = 0;
    CLT_TRY(clt_mpi_check(MPI_Testsome(b->count, b->requests, &ended, b->ended, b->statuses),
                          "MPI_Testsome"));
    *done = 1;
    for (int i = 0; i < b->count; i++)
        if (b->requests[i] != MPI_REQUEST_NULL) {
            missing |= b->waits[i];
            *done = 0;
        }
    atomic_store(&b->missing, missing);
    return CLT_OK;
}

/* Makes room for the requests of a call. */
static clt_status begin(clt_mpi_bridge *b, int requests)
{
    b->collective = false;
    b->count = 0;
    if (requests <= b->room)
        return CLT_OK;
    b->room = 0;
    free(b->requests);
    free(b->waits);
    free(b->ended);
    free(b->statuses);
    b->requests = calloc((size_t)requests, sizeof *b->requests);
    b->waits = calloc((size_t)requests, sizeof *b->waits);
    b->ended = calloc((size_t)requests, sizeof *b->ended);
    b->statuses = calloc((size_t)requests, sizeof *b->statuses);
    if (!b->requests || !b->waits || !b->ended || !b->statuses)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    b->room = requests;
    return CLT_OK;
}

/* Adds a request that waits for a node's data, or for none if `from` is negative. */
static MPI_Request *add(clt_mpi_bridge *b, int from)
{
    b->requests[b->count] = MPI_REQUEST_NULL;
    b->waits[b->count] = from < 0 ? 0 : (uint64_t)1 << from;
    return &b->requests[b->count++];
}

/* Bytes of a message of MPI, whose counts are ints. */
enum { PIECE = 1 << 28 };

static int pieces(int64_t bytes)
{
    return (int)((bytes + PIECE - 1) / PIECE);
}

static clt_status send(clt_mpi_bridge *b, int to, const void *data, int64_t bytes)
{
    clt_status status = CLT_OK;
    for (int64_t at = 0; at < bytes && status == CLT_OK; at += PIECE)
        status = clt_mpi_check(MPI_Isend((const char *)data + at,
                                         bytes - at < PIECE ? (int)(bytes - at) : PIECE, MPI_BYTE,
                                         to, DATA, b->leaders, add(b, -1)),
                               "MPI_Isend");
    return status;
}

static clt_status receive(clt_mpi_bridge *b, int from, void *data, int64_t bytes)
{
    clt_status status = CLT_OK;
    for (int64_t at = 0; at < bytes && status == CLT_OK; at += PIECE)
        status = clt_mpi_check(MPI_Irecv((char *)data + at,
                                         bytes - at < PIECE ? (int)(bytes - at) : PIECE, MPI_BYTE,
                                         from, DATA, b->leaders, add(b, from)),
                               "MPI_Irecv");
    return status;
}

/* Sends one message to each node, and receives one from each in `received`. */
static clt_status swap(clt_mpi_bridge *b, const char *data, int64_t stride, int64_t bytes,
                       char *received)
{
    clt_status status = begin(b, 2 * b->nodes * pieces(bytes));
    for (int n = 0; n < b->nodes && status == CLT_OK; n++)
        if (n != b->node)
            status = receive(b, n, received + n * bytes, bytes);
    /* Each node begins with another node. */
    for (int i = 1; i < b->nodes && status == CLT_OK; i++) {
        const int n = (b->node + i) % b->nodes;
        status = send(b, n, data + n * stride, bytes);
    }
    if (status == CLT_OK)
        memcpy(received + b->node * bytes, data + b->node * stride, (size_t)bytes);
    return status;
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    return swap(user, mine, 0, bytes, all);
}

static clt_status exchange(void *user, const void *blocks, int64_t bytes, void *received)
{
    return swap(user, blocks, bytes, bytes, received);
}

static clt_status transfer(void *user, const clt_comm_message *messages, int count)
{
    clt_mpi_bridge *b = user;
    int requests = 0;
    for (int i = 0; i < count; i++)
        requests += pieces(messages[i].bytes);
    clt_status status = begin(b, requests);
    for (int i = 0; i < count && status == CLT_OK; i++) {
        const clt_comm_message *m = &messages[i];
        status =
            m->send ? send(b, m->node, m->data, m->bytes) : receive(b, m->node, m->data, m->bytes);
    }
    return status;
}

/* Uses a collective of MPI, whose messages need not go from the root to all. */
static clt_status broadcast(void *user, int root, void *data, int64_t bytes)
{
    clt_mpi_bridge *b = user;
    clt_status status = begin(b, pieces(bytes));
    b->collective = true;
    for (int64_t at = 0; at < bytes && status == CLT_OK; at += PIECE)
        status = clt_mpi_check(MPI_Ibcast((char *)data + at,
                                          bytes - at < PIECE ? (int)(bytes - at) : PIECE, MPI_BYTE,
                                          root, b->leaders, add(b, root == b->node ? -1 : root)),
                               "MPI_Ibcast");
    return status;
}

static uint64_t missing(void *user)
{
    return atomic_load(&((clt_mpi_bridge *)user)->missing);
}

static int busy(void *user)
{
    return atomic_load(&((clt_mpi_bridge *)user)->busy);
}

/* Notices are small enough to be sent at once, and nobody waits for them. */
static void tell(void *user, const void *notice, int64_t bytes)
{
    clt_mpi_bridge *b = user;
    memcpy(b->notice, notice, (size_t)bytes);
    for (int n = 0; n < b->nodes; n++)
        if (n != b->node)
            MPI_Isend(b->notice, (int)bytes, MPI_BYTE, n, NOTICE, b->leaders, &b->told[n]);
}

static int hear(void *user, void *notice, int64_t bytes)
{
    clt_mpi_bridge *b = user;
    MPI_Status of;
    int which = 0, there = 0;
    if (MPI_Testany(b->nodes, b->hears, &which, &there, &of) != MPI_SUCCESS || !there ||
        which == MPI_UNDEFINED)
        return 0;
    memcpy(notice, b->heard + (size_t)which * NOTICE_BYTES, (size_t)bytes);
    return 1;
}

/* Each node sends one notice, unless all finalize. A posted receive prevents MPI from finding
 * unwanted messages at its end. */
static clt_status expect_notices(clt_mpi_bridge *b)
{
    for (int n = 0; n < b->nodes; n++)
        if (n != b->node)
            CLT_TRY(clt_mpi_check(MPI_Irecv(b->heard + (size_t)n * NOTICE_BYTES, NOTICE_BYTES,
                                            MPI_BYTE, n, NOTICE, b->leaders, &b->hears[n]),
                                  "MPI_Irecv"));
    return CLT_OK;
}

/* Receives messages of calls that this node did not make. */
static void drain(clt_mpi_bridge *b)
{
    MPI_Status of;
    int there = 0, bytes = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, DATA, b->leaders, &there, &of) == MPI_SUCCESS && there) {
        MPI_Get_count(&of, MPI_BYTE, &bytes);
        char *data = bytes <= MOST_DRAINED ? malloc((size_t)bytes + 1) : NULL;
        if (!data)
            return;
        MPI_Recv(data, bytes, MPI_BYTE, of.MPI_SOURCE, DATA, b->leaders, MPI_STATUS_IGNORE);
        free(data);
    }
}

clt_status clt_mpi_split_node(MPI_Comm ranks, MPI_Comm *node)
{
    int rank = 0;
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank"));
#ifdef CLT_TESTING
    /* Tests make nodes of this number of ranks on one machine. */
    const char *text = getenv("CLT_TESTING_NODE_RANKS");
    int of_all = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &of_all);
    if (text && atoi(text) > 0)
        return clt_mpi_check(MPI_Comm_split(ranks, of_all / atoi(text), rank, node),
                             "MPI_Comm_split");
#endif
    return clt_mpi_check(
        MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, node),
        "MPI_Comm_split_type");
}

/* Finds the node's place among the nodes on its first rank, and broadcasts it to the node. */
static clt_status find_nodes(clt_mpi_bridge *b, MPI_Comm ranks, MPI_Comm node, int number)
{
    int rank = 0, node_rank = 0, place[2] = {0, 1};
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_split(ranks, node_rank ? MPI_UNDEFINED : 0, rank, &b->leaders),
                          "MPI_Comm_split"));
    if (b->leaders != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(b->leaders, MPI_ERRORS_RETURN);
        CLT_TRY(clt_mpi_check(MPI_Comm_rank(b->leaders, &place[0]), "MPI_Comm_rank"));
        CLT_TRY(clt_mpi_check(MPI_Comm_size(b->leaders, &place[1]), "MPI_Comm_size"));
    }
    CLT_TRY(clt_mpi_check(MPI_Bcast(place, 2, MPI_INT, 0, node), "MPI_Bcast"));
    b->node = place[0];
    b->nodes = place[1];
    if (b->leaders == MPI_COMM_NULL || b->nodes == 1)
        return CLT_OK;
    b->first = calloc((size_t)b->nodes, sizeof *b->first);
    b->told = calloc((size_t)b->nodes, sizeof *b->told);
    b->hears = calloc((size_t)b->nodes, sizeof *b->hears);
    b->heard = calloc((size_t)b->nodes, NOTICE_BYTES);
    for (int n = 0; b->told && b->hears && n < b->nodes; n++)
        b->told[n] = b->hears[n] = MPI_REQUEST_NULL;
    if (!b->first || !b->told || !b->hears || !b->heard)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    CLT_TRY(begin(b, 2 * b->nodes));
    CLT_TRY(clt_mpi_check(MPI_Allgather(&number, 1, MPI_INT, b->first, 1, MPI_INT, b->leaders),
                          "MPI_Allgather"));
    return expect_notices(b);
}

clt_status clt_mpi_bridge_open(MPI_Comm ranks, MPI_Comm node, int number, clt_mpi_bridge **out,
                               clt_comm_bridge *functions)
{
    int level = MPI_THREAD_SINGLE;
    clt_mpi_bridge *b = calloc(1, sizeof *b);
    if (!b)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    b->leaders = MPI_COMM_NULL;
    clt_status status = find_nodes(b, ranks, node, number);
    CLT_NEXT(status, clt_mpi_check(MPI_Query_thread(&level), "MPI_Query_thread"));
    if (status != CLT_OK || b->nodes == 1) {
        clt_mpi_bridge_close(b, status != CLT_OK);
        return status;
    }
    clt_comm_bridge_init(functions);
    functions->node = b->node;
    functions->nodes = b->nodes;
    functions->main_thread = level < MPI_THREAD_MULTIPLE;
    functions->gather = gather;
    functions->exchange = exchange;
    functions->broadcast = broadcast;
    functions->transfer = transfer;
    functions->test = test;
    functions->cancel = cancel;
    functions->missing = missing;
    functions->busy = busy;
    functions->tell = tell;
    functions->hear = hear;
    functions->first_ranks = b->first;
    functions->user = b;
    *out = b;
    return CLT_OK;
}

static void free_bridge(clt_mpi_bridge *b)
{
    free(b->first);
    free(b->requests);
    free(b->waits);
    free(b->ended);
    free(b->statuses);
    free(b->told);
    free(b->hears);
    free(b->heard);
    free(b);
}

/* Runs at the beginning of MPI_Finalize, if not all ranks finalized the communicator. MPI complains
 * of receives and messages that are left, so this waits a moment for notices of the others. */
static int settle(MPI_Comm self, int key, void *value, void *extra)
{
    enum { LOOKS = 200 };
    clt_mpi_bridge *b = value;
    const struct timespec pause = {0, 1000000};
    int there = 0, idle = 1;
    (void)self;
    (void)key;
    (void)extra;
    for (int looks = 0; !there && looks < LOOKS; looks++) {
        if (MPI_Testall(b->nodes, b->hears, &there, b->statuses) != MPI_SUCCESS)
            break;
        if (!there)
            nanosleep(&pause, NULL);
    }
    for (int n = 0; n < b->nodes; n++)
        idle &= withdraw(&b->told[n], false) && withdraw(&b->hears[n], true);
    drain(b);
    if (idle)
        free_bridge(b);
    return MPI_SUCCESS;
}

static bool settle_at_end(clt_mpi_bridge *b)
{
    int key = MPI_KEYVAL_INVALID;
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, settle, &key, NULL) != MPI_SUCCESS)
        return false;
    const bool set = MPI_Comm_set_attr(MPI_COMM_SELF, key, b) == MPI_SUCCESS;
    MPI_Comm_free_keyval(&key); /* the attribute keeps the key */
    return set;
}

void clt_mpi_bridge_close(clt_mpi_bridge *b, int aborted)
{
    int finalized = 0, idle = 1;
    if (!b)
        return;
    MPI_Finalized(&finalized);
    if (finalized) /* nothing is under way any more */
        aborted = 0;
    else if (aborted && b->hears && b->leaders != MPI_COMM_NULL && settle_at_end(b))
        return;
    for (int n = 0; !finalized && b->hears && n < b->nodes; n++)
        idle &= withdraw(&b->told[n], false) && withdraw(&b->hears[n], true);
    if (!finalized && !aborted && b->leaders != MPI_COMM_NULL)
        MPI_Comm_free(&b->leaders);
    if (idle)
        free_bridge(b);
}

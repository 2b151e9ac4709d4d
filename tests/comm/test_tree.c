/* Sums in the order of a binary tree. Every division of the leaves over devices, ranks and nodes
 * gives the bits of a sum that the test forms itself. */
#include "comm/core/tree.h"
#include "comm/nodes.h"

enum { LEAVES = 8, COUNT = 20011 };

/* --- the reference ---------------------------------------------------------------------------- */

static float from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Returns a number whose sums of a few are rounded in nearly all orders. */
static double leaf(int number, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)number * 40503u + 17;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexp((double)(int32_t)x, -31) * (1 + x % 5);
}

/* Returns element i of the sum of leaves [first, end). */
static double tree(clt_dtype dtype, int first, int end, int64_t i)
{
    if (end == first + 1)
        return dtype == CLT_F64   ? leaf(first, i)
               : dtype == CLT_F32 ? (double)(float)leaf(first, i)
                                  : (double)from_bf16(to_bf16((float)leaf(first, i)));
    const int middle = (first + end) / 2;
    const double a = tree(dtype, first, middle, i), b = tree(dtype, middle, end, i);
    return dtype == CLT_F64   ? a + b
           : dtype == CLT_F32 ? (double)((float)a + (float)b)
                              : (double)from_bf16(to_bf16((float)a + (float)b));
}

static void store(clt_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == CLT_F64)
        ((double *)data)[i] = value;
    else if (dtype == CLT_F32)
        ((float *)data)[i] = (float)value;
    else
        ((uint16_t *)data)[i] = to_bf16((float)value);
}

/* Returns the bytes of the sum of leaves [first, end). */
static size_t make(clt_dtype dtype, int first, int end, char *data)
{
    for (int64_t i = 0; i < COUNT; i++)
        store(dtype, data, i, tree(dtype, first, end, i));
    return COUNT * (size_t)clt_dtype_size(dtype);
}

/* --- collectives ------------------------------------------------------------------------------ */

/* The leaves of the devices; 0 ends a row. */
static const int divisions[][FIXTURE_MAX] = {
    {8}, {4, 4}, {4, 2, 2}, {2, 2, 4}, {2, 2, 2, 2}, {4, 1, 1, 2}, {1, 1, 2, 2, 2},
};

enum { DIVISIONS = sizeof divisions / sizeof *divisions };

static int count_of(const int *row)
{
    int n = 0;
    while (n < FIXTURE_MAX && row[n])
        n++;
    return n;
}

static clt_comm_op operation(const int *row, int d, clt_dtype dtype, cl_mem mem)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.dtype = dtype;
    op.mem = mem;
    op.count = COUNT;
    op.leaves = row[d];
    op.label = "leaves";
    return op;
}

/* Sums on devices whose communicator and number there are comms[d] and numbers[d], and compares. */
static void sum(const fixture *f, clt_comm *const *comms, const int *numbers, const int *row,
                clt_dtype dtype)
{
    static char data[COUNT * 8], wanted[COUNT * 8];
    clt_comm_request *requests[FIXTURE_MAX];
    cl_mem mem[FIXTURE_MAX];
    const int n = count_of(row);
    const size_t bytes = make(dtype, 0, LEAVES, wanted);
    for (int d = 0, first = 0; d < n; first += row[d++]) {
        mem[d] = fixture_buffer(f, d, bytes);
        make(dtype, first, first + row[d], data);
        FIXTURE_CL(
            clEnqueueWriteBuffer(f->queues[d], mem[d], CL_TRUE, 0, bytes, data, 0, NULL, NULL));
    }
    for (int d = 0; d < n; d++) {
        const clt_comm_op op = operation(row, d, dtype, mem[d]);
        assert_int_equal(clt_comm_start(comms[d], numbers[d], -1, &op, 0, NULL, &requests[d]),
                         CLT_OK);
    }
    for (int d = 0; d < n; d++) {
        if (clt_comm_complete(requests[d], numbers[d], NULL, NULL) != CLT_OK)
            fail_msg("%s", clt_error_message());
        FIXTURE_CL(
            clEnqueueReadBuffer(f->queues[d], mem[d], CL_TRUE, 0, bytes, data, 0, NULL, NULL));
        if (memcmp(data, wanted, bytes))
            fail_msg("%d devices, the first with %d leaves: the sum of %s differs on device %d", n,
                     row[0], clt_dtype_name(dtype), d);
        clReleaseMemObject(mem[d]);
    }
}

static const clt_dtype tree_types[] = {CLT_F32, CLT_F64, CLT_BF16};

static void devices_of_a_process(void **state)
{
    static const clt_comm_path paths[] = {CLT_COMM_PATH_AUTO, CLT_COMM_PATH_MAPPED,
                                          CLT_COMM_PATH_STAGED, CLT_COMM_PATH_PEER};
    const int numbers[FIXTURE_MAX] = {0, 1, 2, 3, 4};
    (void)state;
    for (int i = 0; i < DIVISIONS; i++)
        for (int p = 0; p < 4; p++) {
            fixture f;
            clt_comm *comm, *comms[FIXTURE_MAX];
            clt_comm_options options;
            clt_comm_options_init(&options);
            options.path = paths[p];
            fixture_open(&f, count_of(divisions[i]), true, false);
            if (paths[p] == CLT_COMM_PATH_PEER && f.count != 2) {
                fixture_close(&f); /* others go through the host */
                continue;
            }
            if (fixture_comm(&f, &options, &comm) != CLT_OK)
                fail_msg("%s", clt_error_message());
            for (int d = 0; d < FIXTURE_MAX; d++)
                comms[d] = comm;
            for (int t = 0; t < 3; t++)
                sum(&f, comms, numbers, divisions[i], tree_types[t]);
            clt_comm_destroy(comm);
            fixture_close(&f);
        }
}

static void sum_between(const fixture *f, owner *owners, int devices, int devices_a_rank,
                        uint32_t row)
{
    clt_comm *comms[FIXTURE_MAX];
    int numbers[FIXTURE_MAX];
    assert_int_equal(devices, count_of(divisions[row]));
    for (int d = 0; d < devices; d++) {
        comms[d] = owners[d / devices_a_rank].comm;
        numbers[d] = d % devices_a_rank;
    }
    for (int t = 0; t < 3; t++)
        sum(f, comms, numbers, divisions[row], tree_types[t]);
}

static void ranks_and_nodes(void **state)
{
    static const int shapes[][4] = {/* nodes, ranks of a node, devices of a rank, division */
                                    {1, 2, 1, 1}, {2, 1, 1, 1}, {2, 1, 2, 4}, {1, 2, 2, 4},
                                    {2, 2, 1, 4}, {4, 1, 1, 4}, {3, 1, 1, 2}, {1, 3, 1, 3},
                                    {1, 4, 1, 5}, {4, 1, 1, 5}, {1, 5, 1, 6}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        with_nodes(shapes[i][0], shapes[i][1], shapes[i][2], 0, 0, sum_between,
                   (uint32_t)shapes[i][3]);
}

/* Blocks that form no node are refused before anything is added. */
static void refuse(const int *row, int flags, clt_comm_reduction reduction, const char *part)
{
    fixture f;
    clt_comm *comm;
    clt_comm_request *requests[FIXTURE_MAX];
    clt_status status = CLT_OK;
    fixture_open(&f, count_of(row), false, false);
    assert_int_equal(fixture_comm(&f, NULL, &comm), CLT_OK);
    cl_mem mem[FIXTURE_MAX];
    int started = 0;
    for (int d = 0; d < f.count; d++) {
        mem[d] = fixture_buffer(&f, d, COUNT * 4);
        clt_comm_op op = operation(row, d, CLT_F32, mem[d]);
        op.flags = flags;
        op.reduction = reduction;
        if (status == CLT_OK)
            status = clt_comm_start(comm, d, -1, &op, 0, NULL, &requests[d]);
        started += status == CLT_OK;
    }
    for (int d = 0; d < started; d++) {
        const clt_status end = clt_comm_complete(requests[d], d, NULL, NULL);
        assert_int_not_equal(end, CLT_OK);
        status = end;
    }
    assert_int_not_equal(status, CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" lacks \"%s\"", clt_error_message(), part);
    clt_comm_destroy(comm);
    for (int d = 0; d < f.count; d++)
        clReleaseMemObject(mem[d]);
    fixture_close(&f);
}

static void what_is_no_tree(void **state)
{
    (void)state;
    refuse((const int[FIXTURE_MAX]){2, 4, 2}, 0, CLT_COMM_SUM, "no block of the tree");
    refuse((const int[FIXTURE_MAX]){4, 2}, 0, CLT_COMM_SUM, "no block of the tree");
    refuse((const int[FIXTURE_MAX]){3, 1}, 0, CLT_COMM_SUM, "3 leaves");
    refuse((const int[FIXTURE_MAX]){2, 2}, CLT_COMM_EMPTY, CLT_COMM_SUM, "no empty devices");
    refuse((const int[FIXTURE_MAX]){2, 2}, 0, CLT_COMM_MAX, "reduction");
}

/* Measuring has an order of its own, which does not depend on the division either. */
static void squares(void **state)
{
    static float in[LEAVES][COUNT];
    static const int8_t alone[LEAVES] = {0}, joined[2] = {2, 2};
    static float half[2][COUNT], all[COUNT], again[COUNT];
    const void *from[LEAVES], *halves[2] = {half[0], half[1]};
    void *to = all, *to_again = again, *to_half;
    double one = 0, other = 0, wanted = 0;
    bool finite = false;
    (void)state;
    for (int v = 0; v < LEAVES; v++) {
        make(CLT_F32, v, v + 1, (char *)in[v]);
        from[v] = in[v];
    }
    clt_tree_sum(CLT_F32, from, alone, LEAVES, &to, 1, COUNT, &one, &finite);
    assert_true(finite);
    for (int h = 0; h < 2; h++) {
        to_half = half[h];
        clt_tree_sum(CLT_F32, from + 4 * h, alone, 4, &to_half, 1, COUNT, NULL, NULL);
    }
    clt_tree_sum(CLT_F32, halves, joined, 2, &to_again, 1, COUNT, &other, &finite);
    assert_memory_equal(all, again, sizeof all);
    assert_memory_equal(&one, &other, sizeof one);
    for (int i = 0; i < COUNT; i++)
        wanted += (double)all[i] * (double)all[i];
    assert_true(fabs(one - wanted) <= 1e-12 * wanted);
    in[3][COUNT - 1] = INFINITY;
    clt_tree_sum(CLT_F32, from, alone, LEAVES, &to, 1, COUNT, &one, &finite);
    assert_false(finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares),
        cmocka_unit_test(devices_of_a_process),
        cmocka_unit_test(ranks_and_nodes),
        cmocka_unit_test(what_is_no_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* clt::comm between two ranks of a split communicator. A third process does not take part. */
#include <cltrain/mpi.h>

#include <cltrain/cltrain.hpp>

#include "check.hpp"

namespace
{

constexpr std::int64_t count = 1000;

/* Small integers, whose sums are exact in any order. */
float number(int rank, std::int64_t i)
{
    return static_cast<float>((i * 7 + 3) % 101 - 50 + 1000 * rank);
}

struct buffer {
    cl_command_queue queue;
    cl_mem mem;

    explicit buffer(const clt::device &device)
        : queue(clCreateCommandQueue(device.cl_context(), device.cl_device(), 0, nullptr)),
          mem(clCreateBuffer(device.cl_context(), CL_MEM_READ_WRITE, count * sizeof(float), nullptr,
                             nullptr))
    {
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        clReleaseMemObject(mem);
        clReleaseCommandQueue(queue);
    }
    void write(const std::vector<float> &values) const
    {
        CHECK(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, values.size() * sizeof(float),
                                   values.data(), 0, nullptr, nullptr) == CL_SUCCESS);
    }
    std::vector<float> read(cl_event after) const
    {
        std::vector<float> values(count);
        CHECK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, count * sizeof(float), values.data(), 1,
                                  &after, nullptr) == CL_SUCCESS);
        clReleaseEvent(after);
        return values;
    }
};

std::vector<float> numbers(int rank)
{
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; i++)
        values.push_back(number(rank, i));
    return values;
}

std::vector<float> after(const clt::comm &comm, const buffer &b, const clt::comm_op &op)
{
    clt::comm_request request = comm.start(0, op);
    cl_event arrived = nullptr;
    const clt_comm_result result = request.complete(&arrived);
    CHECK(!request && result.contributors == 2);
    return b.read(arrived);
}

void collectives(MPI_Comm part, const clt::comm_device &device, const buffer &b, int rank)
{
    clt::comm_options options;
    options.timeout_ms = 600000;
    const clt::comm comm(part, {device}, &options);
    CHECK(comm.size() == 2 && comm.device_count() == 1 && comm.participant(0) == rank);
    CHECK(!comm.describe_transport().empty());
    const std::vector<float> first = numbers(0), second = numbers(1);

    b.write(numbers(rank));
    const std::vector<float> sum =
        after(comm, b, clt::comm_op(CLT_COMM_ALL_REDUCE, CLT_F32, count, b.mem));
    for (std::size_t i = 0; i < sum.size(); i++)
        CHECK(sum[i] == first[i] + second[i]);

    for (int root = 0; root < 2; root++) {
        b.write(numbers(rank));
        clt::comm_op op(CLT_COMM_BROADCAST, CLT_F32, count, b.mem);
        op.root = root;
        CHECK(after(comm, b, op) == (root ? second : first));
    }
    CHECK_ERROR(comm.start(1, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0)), CLT_INVALID_ARGUMENT,
                "");
    comm.finalize();
    CHECK_ERROR(comm.start(0, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0)), CLT_STATE, "");
}

/* The abort of one rank ends the wait of the other. */
void abort(MPI_Comm part, const clt::comm_device &device, int rank)
{
    std::error_code ec;
    const clt::comm comm(part, {device}, nullptr, ec);
    CHECK(comm && !ec);
    if (rank) {
        comm.abort(CLT_ABORTED, "rank 1 has had enough");
        return;
    }
    clt::comm_request request =
        comm.start(0, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0), {}, -1, ec);
    if (!ec) /* else the other rank was faster */
        request.complete(nullptr, ec);
    CHECK(ec && clt::message().find("rank 1 has had enough") != std::string::npos);
}

void bad_ranks(MPI_Comm part, const clt::comm_device &device)
{
    CHECK_ERROR(clt::comm(MPI_COMM_NULL, {device}), CLT_INVALID_ARGUMENT, "MPI_COMM_NULL");
    const clt::detail::list<clt_comm_device> nothing;
    CHECK_ERROR(clt::comm(part, nothing), CLT_INVALID_ARGUMENT, "");
}

} /* namespace */

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &part);
    try {
        if (rank != 1) {
            const clt::runtime runtime;
            const auto opened = clt::devices_open(runtime, test_devices());
            const buffer b(opened[0]);
            const clt::comm_device device(opened[0].cl_context(), opened[0].cl_device(), b.queue);
            collectives(part, device, b, rank ? 1 : 0);
            collectives(part, device, b, rank ? 1 : 0);
            abort(part, device, rank ? 1 : 0);
            MPI_Barrier(part);
            bad_ranks(part, device);
        }
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    MPI_Comm_free(&part);
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all ? report("comm_mpi") : 0;
}

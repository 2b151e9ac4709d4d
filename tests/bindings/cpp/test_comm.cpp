/* Collectives on buffers by clt::comm: sums, requests and residuals, and what ends them. */
#include <cltrain/comm.h>

#include <cltrain/cltrain.hpp>

#include <thread>

#include "check.hpp"

namespace
{

constexpr int devices = 2;
constexpr std::int64_t count = 1000;

struct buffers {
    cl_context context;
    cl_command_queue queue[devices];
    cl_mem mem[devices];

    explicit buffers(const clt::device &device) : context(device.cl_context())
    {
        for (int i = 0; i < devices; i++) {
            queue[i] = clCreateCommandQueue(context, device.cl_device(), 0, nullptr);
            mem[i] =
                clCreateBuffer(context, CL_MEM_READ_WRITE, count * sizeof(float), nullptr, nullptr);
        }
    }
    buffers(const buffers &) = delete;
    buffers &operator=(const buffers &) = delete;
    ~buffers()
    {
        for (int i = 0; i < devices; i++) {
            clReleaseMemObject(mem[i]);
            clReleaseCommandQueue(queue[i]);
        }
    }
};

float number(int device, std::int64_t i)
{
    return static_cast<float>(std::sin(1.0 + 3.0 * static_cast<double>(i) + device));
}

void sums(const clt::comm &comm, const buffers &b)
{
    clt::comm_request requests[devices];
    for (int d = 0; d < devices; d++) {
        std::vector<float> values(count);
        for (std::int64_t i = 0; i < count; i++)
            values[static_cast<std::size_t>(i)] = number(d, i);
        cl_event written = nullptr;
        clEnqueueWriteBuffer(b.queue[d], b.mem[d], CL_TRUE, 0, count * sizeof(float), values.data(),
                             0, nullptr, &written);
        clt::comm_op op(CLT_COMM_ALL_REDUCE, CLT_F32, count, b.mem[d]);
        op.flags = CLT_COMM_MEASURE;
        comm.supports(d, op);
        requests[d] = comm.start(d, op, {written}, 0);
        clReleaseEvent(written);
    }
    for (int d = 0; d < devices; d++) {
        cl_event arrived = nullptr;
        const clt_comm_result result = requests[d].complete(&arrived);
        CHECK(!requests[d] && result.contributors == devices && result.finite);
        std::vector<float> got(count);
        clEnqueueReadBuffer(b.queue[d], b.mem[d], CL_TRUE, 0, count * sizeof(float), got.data(), 1,
                            &arrived, nullptr);
        clReleaseEvent(arrived);
        double squares = 0;
        for (std::int64_t i = 0; i < count; i++) {
            CHECK(got[static_cast<std::size_t>(i)] == number(0, i) + number(1, i));
            squares += static_cast<double>(got[static_cast<std::size_t>(i)]) *
                       static_cast<double>(got[static_cast<std::size_t>(i)]);
        }
        CHECK_NEAR(result.sum_squares, squares, 1e-9 * squares);
    }
    std::int64_t calls = 0;
    for (int t = 0; t < CLT_COMM_TRANSPORTS; t++)
        calls += comm.counts(CLT_COMM_ALL_REDUCE, static_cast<clt_comm_transport>(t)).calls;
    CHECK(calls == 1);
}

void refusals(const clt::comm &comm, const buffers &b)
{
    clt::comm_request none;
    CHECK_ERROR(none.complete(), CLT_INVALID_ARGUMENT, "comm_request");
    CHECK_ERROR(clt::comm().status(), CLT_INVALID_ARGUMENT, "comm");
    CHECK_ERROR(clt::comm_residual(clt::comm(), 4), CLT_INVALID_ARGUMENT, "comm");
    CHECK_ERROR(comm.start(devices, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0)),
                CLT_INVALID_ARGUMENT, "");
    CHECK_ERROR(comm.start(0, clt::comm_op(CLT_COMM_ALL_REDUCE, CLT_F32, 2 * count, b.mem[0])),
                CLT_INVALID_ARGUMENT, "");
    std::error_code ec;
    comm.supports(-1, clt::comm_op(), ec);
    CHECK(ec == clt::make_error_code(CLT_INVALID_ARGUMENT));
}

/* Two ranks, which are threads here, sum through memory that they share. */
void between_ranks(const clt::comm_device (&parts)[devices], const buffers &b)
{
    constexpr std::size_t page = 4096;
    const int one_each[devices] = {1, 1};
    const auto bytes = static_cast<std::size_t>(clt_comm_shared_bytes(devices));
    const std::size_t room = (bytes + page - 1) / page * page;
    void *const shared = std::aligned_alloc(page, room);
    std::memset(shared, 0, room);
    std::string problems[devices];
    const auto rank = [&](int r) {
        try {
            clt::comm_ranks ranks;
            ranks.rank = r;
            ranks.ranks = devices;
            ranks.devices = one_each;
            ranks.shared = shared;
            ranks.shared_bytes = static_cast<std::int64_t>(bytes);
            clt::comm_options options;
            options.timeout_ms = 600000;
            const clt::comm comm({parts[r]}, &options, ranks);
            std::vector<float> values(count);
            for (std::int64_t i = 0; i < count; i++)
                values[static_cast<std::size_t>(i)] = number(r, i);
            clEnqueueWriteBuffer(b.queue[r], b.mem[r], CL_TRUE, 0, count * sizeof(float),
                                 values.data(), 0, nullptr, nullptr);
            cl_event arrived = nullptr;
            clt::comm_request request =
                comm.start(0, clt::comm_op(CLT_COMM_ALL_REDUCE, CLT_F32, count, b.mem[r]));
            request.complete(&arrived);
            clEnqueueReadBuffer(b.queue[r], b.mem[r], CL_TRUE, 0, count * sizeof(float),
                                values.data(), 1, &arrived, nullptr);
            clReleaseEvent(arrived);
            for (std::int64_t i = 0; i < count; i++)
                if (values[static_cast<std::size_t>(i)] != number(0, i) + number(1, i))
                    problems[r] = "a sum is wrong";
            if (comm.size() != devices || comm.participant(0) != r)
                problems[r] = "a rank has a wrong place";
            comm.finalize();
        } catch (const std::exception &e) {
            problems[r] = e.what();
        }
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    std::free(shared);
    for (const std::string &problem : problems)
        if (!problem.empty()) {
            failures++;
            std::printf("between ranks: %s\n", problem.c_str());
        }
    clt::comm_ranks wrong;
    wrong.rank = 2;
    wrong.ranks = devices;
    wrong.devices = one_each;
    CHECK_ERROR(clt::comm({parts[0]}, nullptr, wrong), CLT_INVALID_ARGUMENT, "");
}

void residuals(const clt::comm &comm)
{
    const clt::comm_residual residual(comm, count);
    CHECK(residual.get(CLT_COMM_ROUNDS_SUM) == std::vector<float>(count));
    std::vector<float> left(count, 0.25F);
    residual.set(CLT_COMM_ROUNDS_SUM, left);
    CHECK(residual.has(CLT_COMM_ROUNDS_SUM) && residual.get(CLT_COMM_ROUNDS_SUM) == left);
    left.pop_back();
    CHECK_ERROR(residual.set(CLT_COMM_ROUNDS_SUM, left), CLT_INVALID_ARGUMENT, "another length");
}

} /* namespace */

int main()
{
    try {
        const clt::runtime runtime;
        const auto opened = clt::devices_open(runtime, test_devices());
        const buffers b(opened[0]);
        const clt::comm_device parts[devices] = {
            {b.context, opened[0].cl_device(), b.queue[0]},
            {b.context, opened[0].cl_device(), b.queue[1]},
        };
        clt::comm_options options;
        options.timeout_ms = 600000;
        clt::comm_request left;
        {
            clt::comm comm({parts[0], parts[1]}, &options);
            CHECK(comm.size() == devices && comm.device_count() == devices);
            CHECK(comm.participant(1) == 1 && comm.participant(2) == -1);
            CHECK(!comm.describe_transport().empty() && !comm.needs_progress());
            sums(comm, b);
            refusals(comm, b);
            residuals(comm);
            comm.status();
            left = comm.start(0, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0));
            CHECK_ERROR(comm.finalize(), CLT_STATE, "");
            comm.abort(CLT_ABORTED, "enough");
            CHECK_ERROR(comm.status(), CLT_ABORTED, "enough");
        } /* the request keeps the communicator */
        CHECK_ERROR(left.complete(), CLT_ABORTED, "enough");

        between_ranks(parts, b);
        const clt::comm alone({parts[0]});
        auto barrier = alone.start(0, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0));
        barrier.pass();
        alone.finalize();
        CHECK_ERROR(alone.start(0, clt::comm_op(CLT_COMM_BARRIER, CLT_F32, 0)), CLT_STATE, "");
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    return report("comm");
}

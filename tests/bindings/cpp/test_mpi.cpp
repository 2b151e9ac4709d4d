/* Two ranks of a split communicator train on one batch: the losses and weights are those of
 * gradient descent on the whole batch in double. A third process does not take part. */
#include <cltrain/mpi.h>

#include <cltrain/cltrain.hpp>

#include "check.hpp"

namespace
{

constexpr int samples = 10, first_part = 4;

double input(int i)
{
    return std::sin(1.0 + 2.0 * i);
}

double target(int i)
{
    return 3 * input(i) - 1;
}

void train(MPI_Comm part)
{
    clt::trainer trainer;
    clt::store store;
    int rank = 0;
    {
        const clt::world world(part);
        rank = world.rank();
        CHECK(world.ranks() == 2);
        clt::world_deadlines deadlines;
        deadlines.late = 600;
        world.set_deadlines(deadlines);
        const clt::runtime runtime;
        const auto devices = clt::devices_open(runtime, test_devices());
        clt::graph graph;
        auto x = clt::input(graph, "x", CLT_F32, {CLT_BATCH, 1});
        auto y = clt::input(graph, "y", CLT_F32, {CLT_BATCH, 1});
        auto w = clt::parameter(graph, "w", {1, 1}, {CLT_INIT_ZERO, 0, 0});
        auto b = clt::parameter(graph, "b", {1}, {CLT_INIT_ZERO, 0, 0});
        auto [sum, weight] = clt::mse(clt::linear(x, w, b), y);
        clt::loss(graph, "loss", sum, weight, 1);
        store = clt::store(graph, devices, 1);
        clt::trainer_options options;
        options.lr = 0.1;
        options.batch = 2 * samples;
        options.world = world;
        trainer = clt::trainer(graph, store, options);
    } /* the trainer keeps the world */

    const int begin = rank ? first_part : 0, end = rank ? samples : first_part;
    std::vector<double> x, y;
    for (int i = begin; i < end; i++) {
        x.push_back(input(i));
        y.push_back(target(i));
    }
    double w = 0, b = 0;
    for (int step = 0; step < 20; step++) {
        clt::step_batch batch;
        batch.count = end - begin;
        batch.first = begin;
        batch.total = samples;
        batch.feeds = {{"x", clt::view(x, {-1, 1})}, {"y", clt::view(y, {-1, 1})}};
        trainer.step(batch);
        double loss = 0, dw = 0, db = 0;
        for (int i = 0; i < samples; i++) {
            const double error = w * input(i) + b - target(i);
            loss += error * error / samples;
            dw += 2 * error * input(i) / samples;
            db += 2 * error / samples;
        }
        w -= 0.1 * dw;
        b -= 0.1 * db;
        CHECK_NEAR(trainer.result(step).loss, loss, 1e-5);
    }
    std::array<double, 1> got{};
    store.get_array("b", got);
    CHECK_NEAR(got[0], b, 1e-5);
    trainer.finish();
}

} /* namespace */

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &part);
    try {
        if (rank != 1)
            train(part);
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    std::error_code ec;
    const clt::world none(MPI_COMM_NULL, ec);
    CHECK(ec == clt::make_error_code(CLT_INVALID_ARGUMENT));
    CHECK(clt::message().find("MPI_COMM_NULL") != std::string::npos);
    CHECK_ERROR(none.set_deadlines(clt::world_deadlines()), CLT_INVALID_ARGUMENT, "world");
    const MPI_Comm copy = part;
    MPI_Comm_free(&part);
    const clt::world gone(copy, ec);
    CHECK(ec == clt::make_error_code(CLT_INVALID_ARGUMENT));
    CHECK(clt::message().find("freed through another copy") != std::string::npos);
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all ? report("mpi") : 0;
}

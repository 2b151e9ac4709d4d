/* cl:: objects of CL/opencl.hpp: a device of the program's, and buffers and events in steps. */
#define CL_HPP_TARGET_OPENCL_VERSION 120
#define CL_HPP_MINIMUM_OPENCL_VERSION 120
#define CL_HPP_ENABLE_EXCEPTIONS
#include <CL/opencl.hpp>
#include <cltrain/cltrain.hpp>

#include "check.hpp"

int main()
{
    try {
        std::vector<cl::Platform> platforms;
        cl::Platform::get(&platforms);
        std::vector<cl::Device> all;
        for (const cl::Platform &platform : platforms)
            if (platform.getInfo<CL_PLATFORM_NAME>().find("Portable") != std::string::npos)
                platform.getDevices(CL_DEVICE_TYPE_ALL, &all);
        if (all.empty()) {
            std::printf("no device of PoCL\n");
            return 77;
        }
        const cl::Context context(all[0]);
        const cl::CommandQueue queue(context, all[0]);

        const clt::runtime runtime;
        clt::device device = clt::device::adopt(runtime, context, all[0], queue);
        CHECK(device.cl_context() == context() && device.cl_queue() == queue());
        const clt::graph graph = clt::mlp_regressor(2, {8}, 1, "tanh");
        clt::store store(graph, device, 1);
        clt::trainer_options options;
        options.batch = 4;
        options.lr = 0.1;
        clt::trainer trainer(graph, store, options);
        device.reset();

        /* A step on buffers, behind an event of the program's, equals a step on the host's arrays.
         */
        std::vector<float> x{0, 0, 0, 1, 1, 0, 1, 1}, y{0, 1, 1, 2}, w(16), again(16);
        cl::Buffer bx(context, CL_MEM_READ_ONLY, x.size() * sizeof(float));
        cl::Buffer by(context, CL_MEM_READ_ONLY, y.size() * sizeof(float));
        cl::Event written, stepped;
        queue.enqueueWriteBuffer(bx, CL_FALSE, 0, x.size() * sizeof(float), x.data());
        queue.enqueueWriteBuffer(by, CL_FALSE, 0, y.size() * sizeof(float), y.data(), nullptr,
                                 &written);
        clt::step_batch batch;
        batch.count = 4;
        batch.feeds = {{"x", clt::buffer(bx)}, {"y", clt::buffer(by, CLT_F32, {4, 1})}};
        batch.wait = {written};
        trainer.step(batch, &stepped);
        stepped.wait();
        CHECK(stepped.getInfo<CL_EVENT_COMMAND_EXECUTION_STATUS>() == CL_COMPLETE);
        store.get("fc1.weight", w);
        trainer.step(batch, &stepped); /* the former event is released */
        stepped.wait();

        const clt::store other(graph, clt::device::adopt(runtime, context, all[0], queue), 1);
        const clt::trainer on_host(graph, other, options);
        clt::step_arrays(on_host, {{"x", clt::view(x, {4, 2})}, {"y", clt::view(y, {4, 1})}});
        other.get("fc1.weight", again);
        CHECK(w == again);

        /* Parameters to a buffer, without the host. */
        cl::Buffer parameters(context, CL_MEM_READ_WRITE, 16 * sizeof(float));
        clt::tensor_copy copy;
        copy.name = "fc1.weight";
        copy.array = clt::buffer(parameters);
        cl::Event copied;
        other.copy_out(copy, &copied);
        copied.wait();
        queue.enqueueReadBuffer(parameters, CL_TRUE, 0, 16 * sizeof(float), w.data());
        CHECK(w == again);

        /* Buffers that are too small, or of another context. */
        const cl::Buffer small(context, CL_MEM_READ_ONLY, 8);
        batch.wait.clear();
        batch.feeds[0] = {"x", clt::buffer(small)};
        CHECK_ERROR(trainer.step(batch), CLT_INVALID_ARGUMENT, "feed x");
        const cl::Context elsewhere(all[0]);
        const cl::Buffer foreign(elsewhere, CL_MEM_READ_ONLY, 64);
        batch.feeds[0] = {"x", clt::buffer(foreign)};
        CHECK_ERROR(trainer.step(batch), CLT_INVALID_ARGUMENT, "feed x");
        const clt::dataset samples = clt::dataset::create_buffers("buffers", 4);
        CHECK(samples.add_buffer("x", CLT_F32, {2}, bx, 0) == 0);
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    return report("opencl");
}

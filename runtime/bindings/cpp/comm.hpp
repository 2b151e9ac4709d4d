/* Collectives (<cltrain/comm.h>) and ranks (<cltrain/mpi.h>), for programs that include those
 * headers before this one. */
namespace clt
{

#ifdef CLTRAIN_COMM_H
/* Structs of C with C's defaults. */
struct comm_device : clt_comm_device {
    comm_device(detail::cl_object<struct _cl_context> in,
                detail::cl_object<struct _cl_device_id> which,
                detail::cl_object<struct _cl_command_queue> kernels,
                detail::cl_object<struct _cl_command_queue> transfers = nullptr)
        : clt_comm_device()
    {
        clt_comm_device_init(this);
        context = in.get();
        device = which.get();
        compute = kernels.get();
        transfer = transfers.get();
    }
};
struct comm_options : clt_comm_options {
    comm_options() : clt_comm_options()
    {
        clt_comm_options_init(this);
    }
};
struct comm_ranks : clt_comm_ranks {
    comm_ranks() : clt_comm_ranks()
    {
        clt_comm_ranks_init(this);
    }
};
struct comm_bridge : clt_comm_bridge {
    comm_bridge() : clt_comm_bridge()
    {
        clt_comm_bridge_init(this);
    }
};
struct comm_op : clt_comm_op {
    comm_op() : clt_comm_op()
    {
        clt_comm_op_init(this);
    }
    comm_op(clt_comm_kind what, clt_dtype type, std::int64_t elements,
            detail::cl_object<struct _cl_mem> buffer = nullptr)
        : comm_op()
    {
        kind = what;
        dtype = type;
        count = elements;
        mem = buffer.get();
    }
};

namespace detail
{
template <> struct destroy<clt_comm> {
    void operator()(clt_comm *p) const
    {
        clt_comm_destroy(p);
    }
};
template <> struct destroy<clt_comm_residual> {
    void operator()(clt_comm_residual *p) const
    {
        clt_comm_residual_destroy(p);
    }
};

/* Calls a function of a handle, unless the handle is empty. */
template <class F> void call_on(const void *object, const char *what, std::error_code &ec, F &&call)
{
    ec = object ? make_error_code(call()) : fail(CLT_INVALID_ARGUMENT, empty_handle(what));
}

#if CLT_EXCEPTIONS
/* Calls f(ec) and throws its failure. */
template <class F> auto raising(F &&f)
{
    std::error_code ec;
    if constexpr (std::is_void_v<decltype(f(ec))>) {
        f(ec);
        raise(ec);
    } else {
        auto result = f(ec);
        raise(ec);
        return result;
    }
}
#endif
} /* namespace detail */

/* A collective under way on one device of this process. It keeps its communicator. A request that
 * is dropped without complete() is completed by clt_comm_destroy. */
class comm_request
{
  public:
    comm_request() = default;
    comm_request(std::shared_ptr<clt_comm> comm, clt_comm_request *request, int device)
        : comm_(std::move(comm)), request_(request), device_(device)
    {
    }
    comm_request(const comm_request &) = delete;
    comm_request &operator=(const comm_request &) = delete;
    comm_request(comm_request &&other) noexcept
    {
        *this = std::move(other);
    }
    comm_request &operator=(comm_request &&other) noexcept
    {
        comm_ = std::move(other.comm_);
        request_ = std::exchange(other.request_, nullptr);
        device_ = other.device_;
        return *this;
    }
    clt_comm_request *c() const
    {
        return request_;
    }
    explicit operator bool() const
    {
        return request_ != nullptr;
    }

    /* Waits for the host's part and enqueues the way back. The request is empty afterwards. */
    clt_comm_result complete(detail::event_out event, std::error_code &ec)
    {
        clt_comm_result result{};
        clt_comm_result_init(&result);
        detail::call_on(request_, "comm_request", ec, [&] {
            return clt_comm_complete(std::exchange(request_, nullptr), device_, &result,
                                     event.get());
        });
        comm_.reset();
        return result;
    }
    /* The same without a result: with CLT_COMM_QUEUED it does not wait for the host's part. */
    void pass(detail::event_out event, std::error_code &ec)
    {
        detail::call_on(request_, "comm_request", ec, [&] {
            return clt_comm_complete(std::exchange(request_, nullptr), device_, nullptr,
                                     event.get());
        });
        comm_.reset();
    }
    /* Tells whether complete() would return without blocking. */
    bool test(std::error_code &ec) const
    {
        int done = 0;
        detail::call_on(request_, "comm_request", ec,
                        [&] { return clt_comm_test(request_, device_, &done); });
        return done != 0;
    }
#if CLT_EXCEPTIONS
    clt_comm_result complete(detail::event_out event = nullptr)
    {
        return detail::raising([&](std::error_code &ec) { return complete(event, ec); });
    }
    void pass(detail::event_out event = nullptr)
    {
        detail::raising([&](std::error_code &ec) { pass(event, ec); });
    }
    bool test() const
    {
        return detail::raising([&](std::error_code &ec) { return test(ec); });
    }
#endif

  private:
    std::shared_ptr<clt_comm> comm_;
    clt_comm_request *request_ = nullptr;
    int device_ = 0;
};

/* A communicator. It dies with the last of its handle, its requests and its residuals. */
class comm : public detail::handle<clt_comm>
{
  public:
    using handle::handle;
    using waits = std::vector<detail::cl_object<struct _cl_event>>;
    comm() = default;
    comm(const detail::list<clt_comm_device> &devices, const clt_comm_options *options,
         std::error_code &ec)
    {
        clt_comm *made = nullptr;
        ec = make_error_code(clt_comm_create(devices.data(), devices.count<int>(), options, &made));
        p_ = detail::share(made, {});
    }
    comm(const detail::list<clt_comm_device> &devices, const clt_comm_options *options,
         const clt_comm_ranks &ranks, std::error_code &ec)
    {
        clt_comm *made = nullptr;
        ec = make_error_code(
            clt_comm_create_between(devices.data(), devices.count<int>(), options, &ranks, &made));
        p_ = detail::share(made, {});
    }
#ifdef CLTRAIN_MPI_H
    comm(MPI_Comm ranks, const detail::list<clt_comm_device> &devices,
         const clt_comm_options *options, std::error_code &ec)
    {
        clt_comm *made = nullptr;
        ec = make_error_code(
            clt_comm_create_mpi(ranks, devices.data(), devices.count<int>(), options, &made));
        p_ = detail::share(made, {});
    }
#endif
    /* 0 and -1 for an empty handle. */
    int size() const
    {
        return p_ ? clt_comm_size(c()) : 0;
    }
    int device_count() const
    {
        return p_ ? clt_comm_device_count(c()) : 0;
    }
    int participant(int device) const
    {
        return p_ ? clt_comm_participant(c(), device) : -1;
    }
    std::string describe_transport() const
    {
        return p_ ? clt_comm_describe_transport(c()) : "";
    }
    bool needs_progress() const
    {
        return p_ && clt_comm_needs_progress(c());
    }
    void abort(clt_status status, const detail::text &message) const
    {
        if (p_)
            clt_comm_abort(c(), status, message.c_str());
    }

    /* UNSUPPORTED tells why not. */
    void supports(int device, const clt_comm_op &op, std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec, [&] { return clt_comm_supports(c(), device, &op); });
    }
    void accepts(int device, clt_comm_transport transport, const clt_comm_op *op,
                 std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec,
                        [&] { return clt_comm_accepts(c(), device, transport, op); });
    }
    clt_comm_count counts(clt_comm_kind kind, clt_comm_transport transport,
                          std::error_code &ec) const
    {
        clt_comm_count count{};
        clt_comm_count_init(&count);
        detail::call_on(c(), "comm", ec,
                        [&] { return clt_comm_counts(c(), kind, transport, &count); });
        return count;
    }
    void reserve(int device, std::int64_t bytes, int requests, std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec,
                        [&] { return clt_comm_reserve(c(), device, bytes, requests); });
    }
    /* Joins the device's next collective. `sequence` checks its number; -1: the next one. */
    comm_request start(int device, const clt_comm_op &op, const waits &wait, std::int64_t sequence,
                       std::error_code &ec) const
    {
        clt_comm_request *request = nullptr;
        std::vector<cl_event> events;
        for (const auto &event : wait)
            events.push_back(event.get());
        detail::call_on(c(), "comm", ec, [&] {
            return clt_comm_start(c(), device, sequence, &op, static_cast<int>(events.size()),
                                  events.data(), &request);
        });
        return request ? comm_request(p_, request, device) : comm_request();
    }
    void status(std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec, [&] { return clt_comm_status(c()); });
    }
    void progress(std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec, [&] { return clt_comm_progress(c()); });
    }
    void finalize(std::error_code &ec) const
    {
        detail::call_on(c(), "comm", ec, [&] { return clt_comm_finalize(c()); });
    }
#if CLT_EXCEPTIONS
    explicit comm(const detail::list<clt_comm_device> &devices,
                  const clt_comm_options *options = nullptr)
    {
        *this = detail::raising([&](std::error_code &ec) { return comm(devices, options, ec); });
    }
    comm(const detail::list<clt_comm_device> &devices, const clt_comm_options *options,
         const clt_comm_ranks &ranks)
    {
        *this =
            detail::raising([&](std::error_code &ec) { return comm(devices, options, ranks, ec); });
    }
#ifdef CLTRAIN_MPI_H
    comm(MPI_Comm ranks, const detail::list<clt_comm_device> &devices,
         const clt_comm_options *options = nullptr)
    {
        *this =
            detail::raising([&](std::error_code &ec) { return comm(ranks, devices, options, ec); });
    }
#endif
    void supports(int device, const clt_comm_op &op) const
    {
        detail::raising([&](std::error_code &ec) { supports(device, op, ec); });
    }
    void accepts(int device, clt_comm_transport transport, const clt_comm_op *op = nullptr) const
    {
        detail::raising([&](std::error_code &ec) { accepts(device, transport, op, ec); });
    }
    clt_comm_count counts(clt_comm_kind kind, clt_comm_transport transport) const
    {
        return detail::raising([&](std::error_code &ec) { return counts(kind, transport, ec); });
    }
    void reserve(int device, std::int64_t bytes, int requests) const
    {
        detail::raising([&](std::error_code &ec) { reserve(device, bytes, requests, ec); });
    }
    comm_request start(int device, const clt_comm_op &op, const waits &wait = {},
                       std::int64_t sequence = -1) const
    {
        return detail::raising(
            [&](std::error_code &ec) { return start(device, op, wait, sequence, ec); });
    }
    void status() const
    {
        detail::raising([&](std::error_code &ec) { status(ec); });
    }
    void progress() const
    {
        detail::raising([&](std::error_code &ec) { progress(ec); });
    }
    void finalize() const
    {
        detail::raising([&](std::error_code &ec) { finalize(ec); });
    }
#endif
};

/* What rounding sums to 16 bits has left over. */
class comm_residual : public detail::handle<clt_comm_residual>
{
  public:
    using handle::handle;
    comm_residual() = default;
    comm_residual(const comm &comm, std::int64_t count, std::error_code &ec) : count_(count)
    {
        clt_comm_residual *made = nullptr;
        detail::call_on(comm.c(), "comm", ec,
                        [&] { return clt_comm_residual_create(comm.c(), count, &made); });
        p_ = detail::share(made, {comm.shared()});
    }
    void accept() const
    {
        if (p_)
            clt_comm_residual_accept(c());
    }
    int has(clt_comm_rounding rounding) const
    {
        return p_ ? clt_comm_residual_has(c(), rounding) : 0;
    }
    std::vector<float> get(clt_comm_rounding rounding) const
    {
        std::vector<float> data(p_ ? static_cast<std::size_t>(count_) : 0);
        if (p_)
            clt_comm_residual_get(c(), rounding, data.data());
        return data;
    }
    void set(clt_comm_rounding rounding, const detail::list<float> &data, std::error_code &ec) const
    {
        if (p_ && data.size() != static_cast<std::size_t>(count_))
            ec = detail::fail(CLT_INVALID_ARGUMENT, "data has another length than the residual");
        else
            detail::call_on(c(), "comm_residual", ec,
                            [&] { return clt_comm_residual_set(c(), rounding, data.data()); });
    }
#if CLT_EXCEPTIONS
    comm_residual(const comm &comm, std::int64_t count)
    {
        *this =
            detail::raising([&](std::error_code &ec) { return comm_residual(comm, count, ec); });
    }
    void set(clt_comm_rounding rounding, const detail::list<float> &data) const
    {
        detail::raising([&](std::error_code &ec) { set(rounding, data, ec); });
    }
#endif

  private:
    std::int64_t count_ = 0;
};
#endif

/* The ranks of an MPI communicator (<cltrain/mpi.h>), for programs that include that header before
 * this one and link libcltrain-mpi. Stores, trainers and replicas whose options name the world keep
 * it. End their use with finish() before MPI_Finalize. */
#ifdef CLTRAIN_MPI_H
struct world_deadlines : clt_world_deadlines {
    world_deadlines() : clt_world_deadlines()
    {
        clt_world_deadlines_init(this);
    }
};

class world
{
  public:
    world() = default;
    world(MPI_Comm ranks, std::error_code &ec)
    {
        clt_world made{};
        clt_world_init(&made);
        ec = make_error_code(clt_world_open_mpi(ranks, &made));
        if (!ec)
            p_ = std::shared_ptr<clt_world>(new clt_world(made), [](clt_world *w) {
                clt_world_close(w);
                delete w;
            });
    }
#if CLT_EXCEPTIONS
    explicit world(MPI_Comm ranks)
    {
        std::error_code ec;
        *this = world(ranks, ec);
        detail::raise(ec);
    }
#endif
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    world(world &&) noexcept = default;
    world &operator=(world &&) noexcept = default;

    clt_world *c() const
    {
        return p_.get();
    }
    /* How long ranks wait for others; see clt_world_set_deadlines_mpi. Collective. */
    void set_deadlines(const clt_world_deadlines &deadlines, std::error_code &ec) const
    {
        ec = p_ ? make_error_code(clt_world_set_deadlines_mpi(p_.get(), &deadlines))
                : detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("world"));
    }
#if CLT_EXCEPTIONS
    void set_deadlines(const clt_world_deadlines &deadlines) const
    {
        std::error_code ec;
        set_deadlines(deadlines, ec);
        detail::raise(ec);
    }
#endif
    int rank() const
    {
        return p_ ? p_->rank : 0;
    }
    int ranks() const
    {
        return p_ ? p_->ranks : 1;
    }
    /* For the member `world` of options. */
    operator detail::ref<const clt_world>() const
    {
        return detail::ref<const clt_world>(std::shared_ptr<const clt_world>(p_));
    }

  private:
    std::shared_ptr<clt_world> p_;
};
#endif

} /* namespace clt */

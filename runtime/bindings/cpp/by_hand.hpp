namespace clt
{

/* --- written by hand ----- */

inline void trainer::evaluate(const step_batch &batch, means &out, std::error_code &ec) const
{
    ec.clear();
    detail::in_step_batch c(batch);
    if (!p_)
        ec = detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("trainer"));
    if (!ec)
        ec = c.check();
    if (!ec)
        ec = check(batch);
    out.sums.resize(static_cast<std::size_t>(means_));
    out.weights.resize(static_cast<std::size_t>(means_));
    if (!ec)
        ec = make_error_code(
            clt_trainer_evaluate(p_.get(), &c.c, out.sums.data(), out.weights.data()));
}

/* Evaluates a data set. Of the options only those about data count. */
inline means evaluate(const trainer &trainer, const dataset &dataset, const fit_options &options,
                      std::error_code &ec)
{
    ec.clear();
    means out;
    const auto held_trainer = trainer.shared();
    const auto held_dataset = dataset.shared();
    detail::in_fit_options c(options);
    out.sums.resize(static_cast<std::size_t>(trainer.means_count()));
    out.weights.resize(static_cast<std::size_t>(trainer.means_count()));
    ec = c.check();
    if (!ec && (!trainer || !dataset))
        ec = detail::fail(CLT_INVALID_ARGUMENT,
                          detail::empty_handle(trainer ? "dataset" : "trainer"));
    if (!ec)
        ec = make_error_code(
            clt_evaluate(trainer.c(), dataset.c(), &c.c, out.sums.data(), out.weights.data()));
    c.rethrow();
    if (ec)
        dataset.rethrow();
    return out;
}

inline dataset dataset::create_callback(const detail::text &name, std::int64_t count, fill function,
                                        bool serial, std::error_code &ec)
{
    struct state {
        fill function;
        std::shared_ptr<detail::kept_exception> kept;
    };
    auto held = std::make_shared<state>(
        state{std::move(function), std::make_shared<detail::kept_exception>()});
    const clt_fill_fn call = [](void *user, const std::int64_t *indices, std::int64_t n,
                                void *const *fields) {
        auto &s = *static_cast<state *>(user);
        s.kept->run([&] { s.function(indices, n, fields); });
        return s.kept->thrown()
                   ? clt_error_set(CLT_ABORTED,
                                   "the function that fills samples threw an exception")
                   : CLT_OK;
    };
    clt_dataset *made = nullptr;
    ec = detail::check_texts("clt_dataset_create_callback", {name});
    if (!ec)
        ec = make_error_code(
            clt_dataset_create_callback(name.c_str(), count, call, held.get(), serial, &made));
    dataset out(detail::share(made, {held}));
    out.kept_ = held->kept;
    return out;
}

inline int dataset::add_field(const detail::text &name, clt_dtype dtype,
                              const detail::list<std::int64_t> &shape, std::error_code &ec) const
{
    int field = -1;
    ec = p_ ? detail::check_texts("clt_dataset_add_field", {name})
            : detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("dataset"));
    if (!ec)
        ec = make_error_code(clt_dataset_add_field(c(), name.c_str(), dtype, shape.count<int>(),
                                                   shape.data(), nullptr, CLT_DATA_BORROW, &field));
    return field;
}

inline division planner::weights(int devices) const
{
    division out;
    if (!p_) {
        detail::refuse(detail::empty_handle("planner"));
        return out;
    }
    if (devices < 1 || (devices_ && static_cast<std::size_t>(devices) != devices_)) {
        detail::refuse("clt::planner::weights: " + std::to_string(devices) +
                       " is not the number of devices of all ranks");
        return out;
    }
    out.weights.resize(static_cast<std::size_t>(devices) + (devices_ ? 0 : 1 << 16));
    if (clt_planner_weights(c(), out.weights.data(), &out.quantum))
        out.weights.resize(static_cast<std::size_t>(devices));
    else
        out.weights.clear();
    return out;
}

/* Opens the devices that `list` names. See clt_devices_open. They are closed together, when nothing
 * needs one of them any more. */
inline std::vector<device> devices_open(const runtime &runtime, const detail::text &list,
                                        const device_options &options, std::error_code &ec)
{
    clt_device **all = nullptr;
    int count = 0;
    detail::in_device_options c(options);
    ec = runtime ? detail::check_texts("clt_devices_open", {list})
                 : detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("runtime"));
    if (!ec)
        ec = c.check();
    if (!ec)
        ec = make_error_code(clt_devices_open(runtime.c(), list.c_str(), &c.c, &all, &count));
    std::vector<device> out;
    if (ec)
        return out;
    const std::shared_ptr<clt_device *> owner(
        all, [count](clt_device **p) { clt_devices_close(p, count); });
    for (int i = 0; i < count; i++)
        out.emplace_back(std::shared_ptr<clt_device>(owner, all[i]));
    return out;
}

/* Adds a constant: the elements of a dense array, which are copied. */
inline value constant(const graph &graph, const array &data)
{
    if (!graph || data.whole || data.buffer || clt_array_check(&data, "the constant") != CLT_OK ||
        !clt_array_is_dense(&data)) {
        detail::refuse("clt::constant: it needs a graph, and an array in host memory with a shape "
                       "and without gaps");
        return value();
    }
    const char *first = static_cast<const char *>(data.host) + data.offset;
    return detail::built(clt_constant(graph.c(), data.dtype, data.rank, data.shape, first),
                         graph.shared(), "clt_constant");
}

namespace detail
{
inline std::vector<value> made(clt_value *const *results, std::size_t count,
                               const std::shared_ptr<clt_graph> &graph)
{
    std::vector<value> out;
    for (std::size_t i = 0; i < count && results[i]; i++)
        out.emplace_back(results[i], graph);
    return out;
}
} /* namespace detail */

/* Adds an operator by name, with its attributes as text. See clt_apply_text. */
inline std::vector<value> apply(const graph &graph, const detail::text &name,
                                const detail::values &in, const detail::text &attributes,
                                std::error_code &ec)
{
    clt_value *results[CLT_MAX_RESULTS] = {};
    ec = graph ? detail::check_texts("clt_apply_text", {name, attributes})
               : detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("graph"));
    if (!ec)
        ec = make_error_code(clt_apply_text(graph.c(), name.c_str(), in.data(), in.count<int>(),
                                            attributes.c_str(), results));
    return detail::made(results, CLT_MAX_RESULTS, graph.shared());
}

/* Split x along an axis. See clt_split_with_sizes and clt_chunk. */
inline std::vector<value> split_with_sizes(const value &x, const detail::list<std::int64_t> &sizes,
                                           int axis, std::error_code &ec)
{
    std::vector<clt_value *> parts(sizes.size());
    ec = make_error_code(
        clt_split_with_sizes(x.c(), sizes.data(), sizes.count<int>(), axis, parts.data()));
    return detail::made(parts.data(), parts.size(), x.graph());
}
inline std::vector<value> chunk(const value &x, int count, int axis, std::error_code &ec)
{
    std::vector<clt_value *> parts(count > 0 ? static_cast<std::size_t>(count) : 0);
    ec = make_error_code(clt_chunk(x.c(), count, axis, parts.data()));
    return detail::made(parts.data(), parts.size(), x.graph());
}

/* Recurrent layers. See clt_layer_lstm. The final states are written to `layer`. */
inline value layer_recurrent(clt_value *(*build)(clt_graph *, clt_value *, const char *,
                                                 clt_layer_recurrent *),
                             const graph &graph, const value &x, const detail::text &name,
                             layer_recurrent_options &layer)
{
    if (name.cut()) {
        detail::refuse(detail::cut_text("clt::layer_lstm and layer_gru: name"));
        return value();
    }
    clt_layer_recurrent c{};
    c.hidden = layer.hidden;
    c.layers = layer.layers;
    c.bidirectional = layer.bidirectional;
    c.dropout = layer.dropout;
    c.lengths = layer.lengths.c();
    for (std::size_t i = 0; i < CLT_LAYER_STATES; i++) {
        c.h0[i] = layer.h0[i].c();
        c.c0[i] = layer.c0[i].c();
    }
    clt_value *y = build(graph.c(), x.c(), name.c_str(), &c);
    if (!y && graph && clt_graph_status(graph.c()) == CLT_OK) {
        detail::refuse("clt::layer_lstm and layer_gru: impossible numbers of layers or units");
        return value();
    }
    for (std::size_t i = 0; i < CLT_LAYER_STATES; i++) {
        layer.h_n[i] = c.h_n[i] ? value(c.h_n[i], graph.shared()) : value();
        layer.c_n[i] = c.c_n[i] ? value(c.c_n[i], graph.shared()) : value();
    }
    return detail::built(y, graph.shared(), "clt_layer_lstm");
}
inline value layer_lstm(const graph &graph, const value &x, const detail::text &name,
                        layer_recurrent_options &layer)
{
    return layer_recurrent(clt_layer_lstm, graph, x, name, layer);
}
inline value layer_gru(const graph &graph, const value &x, const detail::text &name,
                       layer_recurrent_options &layer)
{
    return layer_recurrent(clt_layer_gru, graph, x, name, layer);
}

/* Sets the log function of the process, which gets lines up to a level; an empty one: none. Several
 * threads may call it. It must not throw: exceptions are dropped. Call it before all other
 * functions of the library. */
inline void log_set(std::function<void(clt_log_level, const char *)> function, clt_log_level most)
{
    static std::function<void(clt_log_level, const char *)> kept;
    const bool wanted = static_cast<bool>(function);
    clt_log_set(nullptr, nullptr, most);
    kept = std::move(function);
    if (wanted)
        clt_log_set(
            [](void *, clt_log_level level, const char *line) {
                detail::kept_exception dropped;
                dropped.run([&] { kept(level, line); });
            },
            nullptr, most);
}

/* Sets the function of the process that is told how far kernels are compiled; an empty one: none.
 * See clt_compile_set. Exceptions are dropped, as those of the log. */
inline void compile_set(std::function<void(const char *, int, int, int)> function)
{
    static std::function<void(const char *, int, int, int)> kept;
    const bool wanted = static_cast<bool>(function);
    clt_compile_set(nullptr, nullptr);
    kept = std::move(function);
    if (wanted)
        clt_compile_set(
            [](void *, const char *device, int kernels, int done, int total) {
                detail::kept_exception dropped;
                dropped.run([&] { kept(device, kernels, done, total); });
            },
            nullptr);
}

/* The functions of a policy of your own; see <cltrain/policy.h>. Each may be empty, and may throw:
 * the run then ends, and fit throws the exception again. `save` gives one JSON value. */
struct policy_functions {
    std::string name;
    std::function<void(clt_policy_run *, const char *state)> begin;
    std::function<void(clt_policy_run *, const clt_evaluation &)> evaluated;
    std::function<std::string()> save;
};

namespace detail
{
struct policy_state {
    clt_policy c{};
    policy_functions functions;
    kept_exception kept;

    template <class F> clt_status run(F &&f)
    {
        kept.run(f);
        return kept.thrown() ? clt_error_set(CLT_ABORTED, "a policy threw an exception") : CLT_OK;
    }
    static clt_status begin(void *user, clt_policy_run *run, const char *state)
    {
        auto &self = *static_cast<policy_state *>(user);
        return self.functions.begin ? self.run([&] { self.functions.begin(run, state); }) : CLT_OK;
    }
    static clt_status evaluated(void *user, clt_policy_run *run, const clt_evaluation *evaluation)
    {
        auto &self = *static_cast<policy_state *>(user);
        return self.functions.evaluated
                   ? self.run([&] { self.functions.evaluated(run, *evaluation); })
                   : CLT_OK;
    }
    static char *save(void *user)
    {
        auto &self = *static_cast<policy_state *>(user);
        std::string json = "null";
        self.kept.run([&] {
            if (self.functions.save)
                json = self.functions.save();
        });
        if (self.kept.thrown())
            return nullptr; /* which ends the run */
        if (is_cut(json))
            json = "cut at a 0 byte"; /* which is not JSON */
        char *copy = static_cast<char *>(std::malloc(json.size() + 1));
        if (copy)
            std::memcpy(copy, json.c_str(), json.size() + 1);
        return copy;
    }
};

inline void rethrow_of(const clt_policy *policy)
{
    if (policy && policy->save == policy_state::save)
        static_cast<policy_state *>(policy->user)->kept.rethrow();
}
} /* namespace detail */

/* Makes a policy of functions. */
inline policy make_policy(policy_functions functions)
{
    if (detail::is_cut(functions.name)) {
        detail::refuse(detail::cut_text("clt::make_policy: name"));
        return policy();
    }
    auto state = std::make_shared<detail::policy_state>();
    state->functions = std::move(functions);
    clt_policy_init(&state->c);
    state->c.name = state->functions.name.c_str();
    state->c.user = state.get();
    state->c.begin = detail::policy_state::begin;
    state->c.evaluated = detail::policy_state::evaluated;
    state->c.save = detail::policy_state::save;
    return policy(std::shared_ptr<clt_policy>(state, &state->c));
}

/* Text that a terminal shows on one line. See clt_printable. */
inline std::string printable(const detail::text &text)
{
    std::string out(static_cast<std::size_t>(clt_printable(text.c_str(), nullptr, 0)) + 1, '\0');
    clt_printable(text.c_str(), &out[0], static_cast<std::int64_t>(out.size()));
    out.pop_back();
    return out;
}

/* The tokens of a text. See clt_tokenizer_encode. */
inline std::vector<std::int32_t> encode(const tokenizer &tokenizer, std::string_view text,
                                        std::error_code &ec)
{
    std::int32_t *ids = nullptr;
    std::int64_t count = 0;
    ec = tokenizer ? make_error_code(clt_tokenizer_encode(tokenizer.c(), text.data(), text.size(),
                                                          &ids, &count))
                   : detail::fail(CLT_INVALID_ARGUMENT, detail::empty_handle("tokenizer"));
    std::vector<std::int32_t> out(ids, ids + count);
    std::free(ids);
    return out;
}

#if CLT_EXCEPTIONS
inline void trainer::evaluate(const step_batch &batch, means &out) const
{
    std::error_code ec;
    evaluate(batch, out, ec);
    detail::raise(ec);
}
inline means evaluate(const trainer &trainer, const dataset &dataset,
                      const fit_options &options = fit_options())
{
    std::error_code ec;
    means out = evaluate(trainer, dataset, options, ec);
    detail::raise(ec);
    return out;
}
inline dataset dataset::create_callback(const detail::text &name, std::int64_t count, fill function,
                                        bool serial)
{
    std::error_code ec;
    dataset out = create_callback(name, count, std::move(function), serial, ec);
    detail::raise(ec);
    return out;
}
inline int dataset::add_field(const detail::text &name, clt_dtype dtype,
                              const detail::list<std::int64_t> &shape) const
{
    std::error_code ec;
    const int field = add_field(name, dtype, shape, ec);
    detail::raise(ec);
    return field;
}
inline std::vector<device> devices_open(const runtime &runtime, const detail::text &list = nullptr,
                                        const device_options &options = device_options())
{
    std::error_code ec;
    std::vector<device> out = devices_open(runtime, list, options, ec);
    detail::raise(ec);
    return out;
}
inline std::vector<value> apply(const graph &graph, const detail::text &name,
                                const detail::values &in, const detail::text &attributes = nullptr)
{
    std::error_code ec;
    std::vector<value> out = apply(graph, name, in, attributes, ec);
    detail::raise(ec);
    return out;
}
inline std::vector<value> split_with_sizes(const value &x, const detail::list<std::int64_t> &sizes,
                                           int axis)
{
    std::error_code ec;
    std::vector<value> out = split_with_sizes(x, sizes, axis, ec);
    detail::raise(ec);
    return out;
}
inline std::vector<value> chunk(const value &x, int count, int axis)
{
    std::error_code ec;
    std::vector<value> out = chunk(x, count, axis, ec);
    detail::raise(ec);
    return out;
}
inline std::vector<std::int32_t> encode(const tokenizer &tokenizer, std::string_view text)
{
    std::error_code ec;
    std::vector<std::int32_t> out = encode(tokenizer, text, ec);
    detail::raise(ec);
    return out;
}
#endif

} /* namespace clt */

namespace clt
{

/* --- values ---------------------------------------------------------------------------------- */

/* A value of a graph. Values are copied freely; each keeps its graph alive. An empty value stands
 * for an operand that is left out, and for the result of a builder that failed without exceptions.
 */
class value
{
  public:
    using c_type = clt_value;
    value() = default;
    value(std::nullptr_t)
    {
    }
    value(clt_value *v, std::shared_ptr<clt_graph> graph) : v_(v), graph_(std::move(graph))
    {
    }

    clt_value *c() const noexcept
    {
        return v_;
    }
    explicit operator bool() const noexcept
    {
        return v_ != nullptr;
    }
    const std::shared_ptr<clt_graph> &graph() const noexcept
    {
        return graph_;
    }

    /* The number of dimensions; a dimension, negative: times the batch; the element type; the name
     * or "". */
    int rank() const
    {
        return v_ ? clt_value_rank(v_) : 0;
    }
    std::int64_t dim(int axis) const
    {
        return v_ ? clt_value_dim(v_, axis) : 0;
    }
    clt_dtype dtype() const
    {
        return v_ ? clt_value_dtype(v_) : CLT_F32;
    }
    std::string name() const
    {
        return v_ ? detail::string_of(clt_value_name(v_)) : std::string();
    }

  private:
    clt_value *v_ = nullptr;
    std::shared_ptr<clt_graph> graph_;
};

namespace detail
{

/* Values for an array of C. */
class values
{
  public:
    values() = default;
    values(const value &one) : values({one})
    {
    }
    values(std::initializer_list<value> items)
    {
        for (const value &item : items)
            add(item);
    }
    template <class C, class = std::enable_if_t<std::is_same_v<
                           std::decay_t<decltype(*std::begin(std::declval<const C &>()))>, value>>>
    values(const C &items)
    {
        for (const value &item : items)
            add(item);
    }
    clt_value *const *data() const
    {
        return pointers_.data();
    }
    template <class N> N count() const
    {
        return static_cast<N>(pointers_.size());
    }
    const std::shared_ptr<clt_graph> &graph() const
    {
        return graph_;
    }

  private:
    void add(const value &item)
    {
        pointers_.push_back(item.c());
        if (!graph_)
            graph_ = item.graph();
    }
    std::vector<clt_value *> pointers_;
    std::shared_ptr<clt_graph> graph_;
};

/* The result of a builder. Its failure is the graph's. */
inline value built(clt_value *v, const std::shared_ptr<clt_graph> &graph, const char *function)
{
    if (v)
        return value(v, graph);
    if (graph)
        raise(make_error_code(clt_graph_status(graph.get())));
    else
        refuse(std::string(function) + ": the operand is empty");
    return value();
}

inline std::shared_ptr<clt_graph>
graph_of(std::initializer_list<std::reference_wrapper<const std::shared_ptr<clt_graph>>> all)
{
    for (const std::shared_ptr<clt_graph> &graph : all)
        if (graph)
            return graph;
    return nullptr;
}

} /* namespace detail */

/* Sums and weights of losses, then of metrics, in the graph's order. */
struct means {
    std::vector<double> sums, weights;

    /* The mean of a loss or metric; NaN without samples. */
    double operator[](std::size_t index) const
    {
        return sums[index] / weights[index];
    }
};

/* How to divide batches: for trainer_options. Equal parts have no weights. */
struct division {
    std::vector<double> weights;
    std::int64_t quantum = 1;
};

/* Settings of layer_lstm and layer_gru: clt_layer_recurrent. h_n and c_n are written. */
struct layer_recurrent_options {
    std::int64_t hidden = 0;
    int layers = 1;
    int bidirectional = 0;
    double dropout = 0;
    value lengths;
    std::array<value, CLT_LAYER_STATES> h0, c0, h_n, c_n;
};

} /* namespace clt */

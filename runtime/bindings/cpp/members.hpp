/* Members of generated classes that are written by hand. Each part goes into the class of its line.
 */
// class trainer
/* Evaluates one batch and waits for it. Adds to the sums and weights. */
#if CLT_EXCEPTIONS
void evaluate(const step_batch &batch, means &out) const;
#endif
void evaluate(const step_batch &batch, means &out, std::error_code &ec) const;

/* The number of losses and metrics, which an evaluation gives. */
int means_count() const
{
    return means_;
}

private:
std::error_code check(const step_batch &batch) const
{
    std::error_code ec = detail::check_size(
        "step_batch.offsets", batch.offsets.size(),
        devices_ ? detail::most(devices_ + 1, batch.offsets.size()) : 0, "one more than devices");
    if (!ec)
        ec = detail::check_size("step_batch.loss_weights", batch.loss_weights.size(),
                                static_cast<std::size_t>(losses_), "one for each loss");
    return ec;
}
void keep_reservoir(std::shared_ptr<const void> reservoir) const
{
    if (const auto kept = reservoir_.lock())
        *kept = {std::move(reservoir)};
}
int means_ = 0, losses_ = 0;
std::size_t devices_ = 0; /* when it was made; 0: not known */
bool one_rank_ = false;
std::weak_ptr<detail::keep> reservoir_; /* lives as long as the trainer of C */
// class store
/* The number of devices that the constructor got. */
std::size_t device_count() const
{
    return devices_;
}

private:
std::size_t devices_ = 0;
// class local
private:
std::size_t trainers_ = 0;
// class dataset
/* Writes the samples with the numbers indices[0 .. count): those of field f go to fields[f], which
 * may be nullptr. An exception fails the load, and fit or evaluate throws it again. */
using fill =
    std::function<void(const std::int64_t *indices, std::int64_t count, void *const *fields)>;
#if CLT_EXCEPTIONS
static dataset create_callback(const detail::text &name, std::int64_t count, fill function,
                               bool serial = false);
int add_field(const detail::text &name, clt_dtype dtype,
              const detail::list<std::int64_t> &shape) const;
#endif
static dataset create_callback(const detail::text &name, std::int64_t count, fill function,
                               bool serial, std::error_code &ec);

/* Adds a field to a data set of create_callback. Other data sets take views: add_array. */
int add_field(const detail::text &name, clt_dtype dtype, const detail::list<std::int64_t> &shape,
              std::error_code &ec) const;

/* Throws the exception of the fill function again, if there was one. */
void rethrow() const
{
    if (kept_)
        kept_->rethrow();
}

private:
std::shared_ptr<detail::kept_exception> kept_;
// class planner
/* The division that was found. `devices` is the number of devices of all ranks. */
division weights(int devices) const;

private:
std::size_t devices_ = 0; /* of all ranks; 0: not known */

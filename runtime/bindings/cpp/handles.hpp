namespace clt
{

/* --- what the rest is made of ---------------------------------------------------------------- */

namespace detail
{

inline void raise([[maybe_unused]] const std::error_code &ec)
{
#if CLT_EXCEPTIONS
    if (ec)
        throw error(static_cast<clt_status>(ec.value()), clt_error_message());
#endif
}

inline std::error_code fail(clt_status status, const std::string &what)
{
    return make_error_code(clt_error_set(status, what.c_str()));
}

/* A failure where nothing takes an error code. */
inline void refuse(const std::string &what)
{
    raise(fail(CLT_INVALID_ARGUMENT, what));
}

inline std::string empty_handle(const char *type)
{
    return std::string("the ") + type + " is empty: it was freed, moved from, or never made";
}

/* The exception of a callback. It may not pass through C, so it is kept and thrown again when the
 * call returns. Callbacks may come from several threads; the first exception counts. */
class kept_exception
{
  public:
    template <class F> void run(F &&f) noexcept
    {
#if CLT_EXCEPTIONS
        try {
            f();
        } catch (...) {
            std::lock_guard<std::mutex> hold(mutex_);
            if (!first_)
                first_ = std::current_exception();
        }
#else
        f();
#endif
    }
    bool thrown()
    {
#if CLT_EXCEPTIONS
        std::lock_guard<std::mutex> hold(mutex_);
        return first_ != nullptr;
#else
        return false;
#endif
    }
    void rethrow()
    {
#if CLT_EXCEPTIONS
        std::exception_ptr taken;
        {
            std::lock_guard<std::mutex> hold(mutex_);
            std::swap(taken, first_);
        }
        if (taken)
            std::rethrow_exception(taken);
#endif
    }

  private:
#if CLT_EXCEPTIONS
    std::mutex mutex_;
    std::exception_ptr first_;
#endif
};

/* Keeps the message of a failure that is reported after an object was destroyed. */
class kept_message
{
  public:
    kept_message()
    {
        std::snprintf(text_, sizeof text_, "%s", clt_error_message());
    }
    kept_message(const kept_message &) = delete;
    kept_message &operator=(const kept_message &) = delete;
    ~kept_message()
    {
        (void)clt_error_set(CLT_OK, text_);
    }

  private:
    char text_[1024];
};

/* What a handle holds: the C object, which is destroyed last, and what must outlive it. */
using keep = std::vector<std::shared_ptr<const void>>;

template <class T> struct destroy; /* how each type of handle is freed */

/* Makes a shared pointer of a new C object. It lives as long as a handle, or another object that
 * needs it. `others` are kept until the object was destroyed. */
template <class T> std::shared_ptr<T> share(T *made, keep others)
{
    return made ? std::shared_ptr<T>(made,
                                     [others = std::move(others)](T *p) mutable {
                                         const kept_message message;
                                         destroy<T>()(p);
                                         others.clear();
                                     })
                : std::shared_ptr<T>();
}

/* A handle of one C object: move-only. */
template <class T> class handle
{
  public:
    using c_type = T;
    constexpr handle() noexcept = default;
    constexpr handle(std::nullptr_t) noexcept
    {
    }
    explicit handle(std::shared_ptr<T> p) noexcept : p_(std::move(p))
    {
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    handle(handle &&) noexcept = default;
    handle &operator=(handle &&) noexcept = default;

    /* The C object, for functions of C; nullptr if the handle is empty. */
    T *c() const noexcept
    {
        return p_.get();
    }
    explicit operator bool() const noexcept
    {
        return static_cast<bool>(p_);
    }
    /* Frees the object, unless another object still needs it: a store lives as long as its
     * trainers. */
    void reset() noexcept
    {
        p_.reset();
    }
    const std::shared_ptr<T> &shared() const noexcept
    {
        return p_;
    }

  protected:
    ~handle() = default;
    std::shared_ptr<T> p_;
};

/* A member of options that names an object. It keeps the object alive. */
template <class T> class ref
{
  public:
    ref() = default;
    ref(std::nullptr_t)
    {
    }
    ref(const handle<T> &h) : p_(h.shared())
    {
    }
    ref(std::shared_ptr<T> p) : p_(std::move(p))
    {
    }
    ref(T *borrowed) : p_(borrowed, [](T *) {})
    {
    }
    T *get() const
    {
        return p_.get();
    }
    const std::shared_ptr<T> &shared() const
    {
        return p_;
    }

  private:
    std::shared_ptr<T> p_;
};

/* What the functions of a policy share; see make_policy. */
struct policy_state;
inline void rethrow_of(const clt_policy *policy);

/* A 0 byte would end a text in C before its end. */
inline bool is_cut(std::string_view s)
{
    return s.find('\0') != s.npos;
}
inline bool is_cut(const std::string &s)
{
    return is_cut(std::string_view(s));
}
inline bool is_cut(const std::optional<std::string> &s)
{
    return s && is_cut(*s);
}
inline std::string cut_text(const std::string &name)
{
    return name + " has a 0 byte, where C would cut the text: leave it out";
}

/* A text for C, which needs a 0 byte at the end. Literals and std::string are not copied. */
class text
{
  public:
    text(std::nullptr_t)
    {
    }
    text(const char *s) : c_(s)
    {
    }
    text(const std::string &s) : c_(s.c_str()), cut_(is_cut(s))
    {
    }
    text(std::string_view s) : owned_(s), c_(owned_->c_str()), cut_(is_cut(s))
    {
    }
    text(const std::optional<std::string> &s) : c_(s ? s->c_str() : nullptr), cut_(is_cut(s))
    {
    }
    text(const text &) = delete;
    text &operator=(const text &) = delete;
    const char *c_str() const
    {
        return c_;
    }
    /* Whether C would get only a part. */
    bool cut() const
    {
        return cut_;
    }

  private:
    std::optional<std::string> owned_;
    const char *c_ = nullptr;
    bool cut_ = false;
};

/* The failure if one of the texts of a call would be cut. */
inline std::error_code check_texts(const char *call,
                                   std::initializer_list<std::reference_wrapper<const text>> texts)
{
    for (const text &one : texts)
        if (one.cut())
            return fail(CLT_INVALID_ARGUMENT, cut_text(std::string(call) + ": a text"));
    return std::error_code();
}

inline std::string string_of(const char *s)
{
    return s ? s : "";
}

inline std::string take_string(char *s)
{
    std::string copy = string_of(s);
    std::free(s);
    return copy;
}

/* Contiguous elements that are read: a container with data() and size(), a C array or {a, b, c}. */
template <class T> class list
{
  public:
    list() = default;
    list(const T *data, std::size_t size) : data_(size ? data : nullptr), size_(size)
    {
    }
    list(std::initializer_list<T> items) : size_(items.size())
    {
        data_ = size_ ? items.begin() : nullptr; /* which live until the call returns */
    }
    template <std::size_t N> list(const T (&items)[N]) : data_(items), size_(N)
    {
    }
    template <class C, class = std::enable_if_t<std::is_convertible_v<
                           decltype(std::data(std::declval<const C &>())), const T *>>>
    list(const C &items) : size_(std::size(items))
    {
        data_ = size_ ? std::data(items) : nullptr;
    }
    const T *data() const
    {
        return data_;
    }
    std::size_t size() const
    {
        return size_;
    }
    /* The number of elements for a parameter of type N. */
    template <class N> N count() const
    {
        return static_cast<N>(size_);
    }

  private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* Numbers that C refuses. */
template <class T> constexpr T refused()
{
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(-1);
}

/* Elements for C, which alone knows how many it reads, at most `most`. The copy ends with numbers
 * that C refuses, so that it refuses a container that is too short. */
template <class C, class T> const T *guarded(const C &given, std::size_t most, std::vector<T> &copy)
{
    if (given.size() == 0)
        return nullptr;
    copy.assign(given.data(), given.data() + given.size());
    copy.resize(std::max(most, given.size()), refused<T>());
    return copy.data();
}

/* The failure if a container has another number of elements than are needed; `needed` 0: not known.
 * An empty one stands for none. */
inline std::error_code check_size(const char *what, std::size_t given, std::size_t needed,
                                  const char *why)
{
    if (!given || !needed || given == needed)
        return std::error_code();
    return fail(CLT_INVALID_ARGUMENT, std::string(what) + " has " + std::to_string(given) +
                                          " elements, and needs " + std::to_string(needed) + ": " +
                                          why);
}

/* What check_size may compare with if losses of devices have made `needed` smaller: then C finds
 * what is missing. */
inline std::size_t most(std::size_t needed, std::size_t given)
{
    return given > needed ? needed : 0;
}

inline bool one_rank(const clt_world *world)
{
    return !world || world->ranks < 2;
}

/* Handles for an array of C: one handle, or a container of them. */
template <class H> class handles
{
  public:
    using c_type = typename H::c_type;
    handles(const H &one)
    {
        add(one);
    }
    handles(std::initializer_list<std::reference_wrapper<const H>> items)
    {
        for (const H &item : items)
            add(item);
    }
    template <class C, class = decltype(std::begin(std::declval<const C &>())->c())>
    handles(const C &items)
    {
        for (const H &item : items)
            add(item);
    }
    c_type *const *data() const
    {
        return pointers_.data();
    }
    template <class N> N count() const
    {
        return static_cast<N>(pointers_.size());
    }
    bool complete() const
    {
        for (c_type *p : pointers_)
            if (!p)
                return false;
        return true;
    }
    void keep_all(keep &others) const
    {
        others.insert(others.end(), shared_.begin(), shared_.end());
    }

  private:
    void add(const H &item)
    {
        pointers_.push_back(item.c());
        shared_.push_back(item.shared());
    }
    std::vector<c_type *> pointers_;
    keep shared_;
};

/* An OpenCL object: C's, or an object of CL/opencl.hpp, whose operator() gives C's. */
template <class T> class cl_object
{
  public:
    cl_object() = default;
    cl_object(std::nullptr_t)
    {
    }
    cl_object(T *object) : object_(object)
    {
    }
    template <class C, class = std::enable_if_t<std::is_convertible_v<
                           std::decay_t<decltype(std::declval<const C &>()())>, T *>>>
    cl_object(const C &object) : object_(object())
    {
    }
    T *get() const
    {
        return object_;
    }

  private:
    T *object_ = nullptr;
};

/* Where an event goes: a cl_event, or a cl::Event, whose former event is released. */
class event_out
{
  public:
    event_out() = default;
    event_out(std::nullptr_t)
    {
    }
    event_out(struct _cl_event **event) : event_(event)
    {
    }
    template <class C, class = std::enable_if_t<
                           std::is_same_v<decltype(std::declval<C &>()()), struct _cl_event *&>>>
    event_out(C *event)
    {
        *event = C();
        event_ = &(*event)();
    }
    struct _cl_event **get() const
    {
        return event_;
    }

  private:
    struct _cl_event **event_ = nullptr;
};

} /* namespace detail */

} /* namespace clt */

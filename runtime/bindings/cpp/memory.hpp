namespace clt
{

/* --- memory ---------------------------------------------------------------------------------- */

namespace detail
{

template <class T> struct always_false : std::false_type {
};
template <class T> struct is_complex : std::false_type {
};

/* Sets a product of sizes of at least 0. It returns false if it leaves 64 bits. */
inline bool multiply(std::int64_t &product, std::int64_t by)
{
    if (by < 0 || (by && product > INT64_MAX / by))
        return false;
    product *= by;
    return true;
}

/* The element type of an array of C++. */
template <class T> constexpr clt_dtype dtype_of()
{
    using E = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<E, float>)
        return CLT_F32;
    else if constexpr (std::is_same_v<E, double>)
        return CLT_F64;
    else if constexpr (std::is_same_v<E, std::uint8_t>)
        return CLT_U8;
    else if constexpr (std::is_same_v<E, bool>)
        static_assert(always_false<T>::value,
                      "cltrain takes no arrays of bool: copy them to std::uint8_t");
    else if constexpr (std::is_integral_v<E> && std::is_signed_v<E> && sizeof(E) == 4)
        return CLT_I32;
    else if constexpr (std::is_integral_v<E> && std::is_signed_v<E> && sizeof(E) == 8)
        return CLT_I64;
    else if constexpr (std::is_class_v<E> && sizeof(E) >= 8)
        static_assert(always_false<T>::value, "cltrain takes no arrays of classes or complex "
                                              "numbers: give the real and the imaginary part as "
                                              "two arrays (clt::strided)");
    else
        static_assert(always_false<T>::value, "cltrain takes arrays of float, double, 32 and "
                                              "64-bit signed integers, and std::uint8_t");
    return CLT_F32;
}

/* The element of nested arrays, and the dimensions that nesting adds:
 * std::vector<std::array<double, 4>> has [size, 4]. */
template <class T> struct nested {
    using element = T;
    static void dims(std::vector<std::int64_t> &)
    {
    }
};
template <class T, std::size_t N> struct nested<std::array<T, N>> {
    using element = typename nested<T>::element;
    static void dims(std::vector<std::int64_t> &out)
    {
        static_assert(sizeof(std::array<T, N>) == N * sizeof(T));
        out.push_back(static_cast<std::int64_t>(N));
        nested<T>::dims(out);
    }
};
template <class T, std::size_t N>
struct nested<const std::array<T, N>> : nested<std::array<const T, N>> {
};
template <class T, std::size_t N> struct nested<T[N]> {
    using element = typename nested<T>::element;
    static void dims(std::vector<std::int64_t> &out)
    {
        out.push_back(static_cast<std::int64_t>(N));
        nested<T>::dims(out);
    }
};

template <class C> using data_of = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;

/* Whether memory outlives a temporary of this type: it does if the type can be copied as bytes and
 * a const one gives the same access, as std::span. */
template <class C>
struct outlives : std::bool_constant<std::is_trivially_copyable_v<C> &&
                                     std::is_same_v<data_of<C>, data_of<const C>>> {
};
template <class T, std::size_t N> struct outlives<std::array<T, N>> : std::false_type {
};
template <class T> struct outlives<std::initializer_list<T>> : std::false_type {
};

template <class C, class = void> struct is_mdspan : std::false_type {
};
template <class C>
struct is_mdspan<C, std::void_t<decltype(std::declval<C &>().data_handle()),
                                decltype(std::declval<C &>().extent(0)),
                                decltype(std::declval<C &>().stride(0))>> : std::true_type {
};

} /* namespace detail */

/*
 * A view of memory, which clt_array describes. It owns nothing: the memory must live as long as the
 * call that takes it says. Containers with data() and size() make views of themselves: std::vector,
 * std::array, std::span, C arrays of any number of dimensions, and std::mdspan. Elements are float,
 * double, 32 and 64-bit signed integers, and std::uint8_t.
 */
class array : public clt_array
{
  public:
    /* No memory. */
    array() : clt_array()
    {
    }
    array(const clt_array &c) : clt_array(c)
    {
    }

    /* All of a container. Its shape is its size, and the sizes of arrays that it contains. */
    template <class C, class E = detail::data_of<C>> array(C &&container) : clt_array()
    {
        static_assert(std::is_lvalue_reference_v<C> ||
                          std::is_trivially_copyable_v<std::decay_t<C>>,
                      "this container dies before the library reads it: give it a name");
        std::vector<std::int64_t> all{static_cast<std::int64_t>(std::size(container))};
        detail::nested<std::remove_cv_t<E>>::dims(all);
        using element = typename detail::nested<std::remove_cv_t<E>>::element;
        set(std::data(container), detail::dtype_of<element>(), sizeof(element), all.data(),
            all.size());
        writable_ = !std::is_const_v<E>;
    }

    /* An mdspan, with its layout. */
    template <class M, std::enable_if_t<detail::is_mdspan<M>::value, int> = 0>
    array(const M &m) : clt_array()
    {
        using E = std::remove_pointer_t<std::decay_t<decltype(m.data_handle())>>;
        constexpr auto n = M::rank();
        static_assert(n <= CLT_MAX_RANK, "cltrain takes at most CLT_MAX_RANK dimensions");
        host = const_cast<std::remove_cv_t<E> *>(m.data_handle());
        dtype = detail::dtype_of<E>();
        rank = static_cast<int>(n);
        for (std::size_t i = 0; i < n; i++) {
            shape[i] = static_cast<std::int64_t>(m.extent(i));
            strides[i] =
                static_cast<std::int64_t>(m.stride(i)) * static_cast<std::int64_t>(sizeof(E));
        }
        writable_ = !std::is_const_v<E>;
    }

    bool writable() const
    {
        return writable_;
    }
    void set_writable(bool yes)
    {
        writable_ = yes;
    }

    /* Describes dense row-major memory. A rank above CLT_MAX_RANK is kept, for the library to
     * refuse. */
    void set(const void *data, clt_dtype type, std::size_t size, const std::int64_t *dims,
             std::size_t n)
    {
        host = const_cast<void *>(data);
        dtype = type;
        rank = static_cast<int>(n);
        std::int64_t stride = static_cast<std::int64_t>(size);
        bool fits = true; /* else the library refuses the shape */
        for (std::size_t i = n; i-- > 0;) {
            if (i < CLT_MAX_RANK) {
                shape[i] = dims[i];
                strides[i] = stride;
            }
            fits = fits && detail::multiply(stride, dims[i]);
        }
        bytes = fits ? stride : 0;
        static char nothing; /* an empty container may have no memory, which C would take for a
                                missing array */
        if (!host && fits && stride == 0)
            host = &nothing;
    }

  private:
    bool writable_ = true;
};

namespace detail
{
/* Arrays for an array of C, whose elements are smaller than clt::array. */
class arrays
{
  public:
    arrays() = default;
    arrays(std::initializer_list<array> items) : items_(items.begin(), items.end())
    {
        for (const array &item : items)
            writable_ = writable_ && item.writable();
    }
    arrays(const std::vector<array> &items) : items_(items.begin(), items.end())
    {
        for (const array &item : items)
            writable_ = writable_ && item.writable();
    }
    const clt_array *data() const
    {
        return items_.empty() ? nullptr : items_.data();
    }
    std::size_t size() const
    {
        return items_.size();
    }
    template <class N> N count() const
    {
        return static_cast<N>(items_.size());
    }
    bool writable() const
    {
        return writable_;
    }
    /* The samples that the first array has; 0 if it does not say. */
    std::size_t samples() const
    {
        const bool known = !items_.empty() && !items_[0].whole && items_[0].rank > 0;
        return known && items_[0].shape[0] > 0 ? static_cast<std::size_t>(items_[0].shape[0]) : 0;
    }

  private:
    std::vector<clt_array> items_;
    bool writable_ = true;
};
} /* namespace detail */

/* Memory of another shape. `x` is a container, or a pointer if C++ does not know its size. One
 * dimension may be -1: it follows from the size of the container. */
template <class C, class E = detail::data_of<C>>
array view(C &&x, std::initializer_list<std::int64_t> dims)
{
    array a(std::forward<C>(x));
    std::vector<std::int64_t> shape(dims);
    std::int64_t known = 1, open = -1;
    bool fits = true;
    const std::int64_t size = a.bytes / clt_dtype_size(a.dtype);
    for (std::size_t i = 0; i < shape.size(); i++)
        if (shape[i] == -1 && open < 0)
            open = static_cast<std::int64_t>(i);
        else
            fits = fits && detail::multiply(known, shape[i]);
    if (open >= 0)
        shape[static_cast<std::size_t>(open)] = known > 0 ? size / known : 0;
    if (!fits || (open >= 0 ? known <= 0 || size % known : size < known)) {
        detail::refuse("clt::view: " + std::to_string(size) + " elements do not make this shape");
        return array();
    }
    const std::int64_t bytes = a.bytes;
    a.set(a.host, a.dtype, static_cast<std::size_t>(clt_dtype_size(a.dtype)), shape.data(),
          shape.size());
    a.bytes = bytes;
    return a;
}
template <class T> array view(T *x, std::initializer_list<std::int64_t> dims)
{
    array a;
    a.set(x, detail::dtype_of<T>(), sizeof(T), dims.begin(), dims.size());
    a.set_writable(!std::is_const_v<T>);
    return a;
}

/* A view with strides, in elements: every second column of a table x of n rows and 4 columns is
 * strided(x, {n, 2}, {4, 2}). */
template <class T>
array strided(T *x, std::initializer_list<std::int64_t> dims,
              std::initializer_list<std::int64_t> strides)
{
    array a = view(x, dims);
    a.bytes = 0;
    if (dims.size() != strides.size()) {
        detail::refuse("clt::strided: " + std::to_string(dims.size()) + " dimensions, but " +
                       std::to_string(strides.size()) + " strides");
        return array();
    }
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    for (std::size_t i = 0; i < strides.size() && i < CLT_MAX_RANK; i++) {
        const std::int64_t stride = strides.begin()[i];
        if (stride > INT64_MAX / size || stride < INT64_MIN / size) {
            detail::refuse("clt::strided: a stride of " + std::to_string(stride) +
                           " elements leaves the address space");
            return array();
        }
        a.strides[i] = stride * size;
    }
    return a;
}
template <class C, class E = detail::data_of<C>>
array strided(C &&x, std::initializer_list<std::int64_t> dims,
              std::initializer_list<std::int64_t> strides)
{
    array whole(std::forward<C>(x));
    array a =
        strided(static_cast<typename detail::nested<E>::element *>(whole.host), dims, strides);
    a.bytes = whole.bytes;
    a.set_writable(whole.writable());
    return a;
}

/* Memory that has what the call needs, in its type, row-major and without gaps. Elements of 64 bits
 * are no tensor's: with a shape (clt::view) they are converted. */
template <class T> array whole(T *x)
{
    array a;
    if constexpr (!std::is_void_v<T>) {
        a.dtype = detail::dtype_of<T>();
        static_assert(sizeof(T) < 8, "tensors have no elements of 64 bits: give clt::view with a "
                                     "shape, so that the library converts them");
    }
    a.host = const_cast<std::remove_cv_t<T> *>(x);
    a.whole = 1;
    a.set_writable(!std::is_const_v<T>);
    return a;
}

/* An OpenCL buffer from a byte on, as the call needs it, or of a type and shape. */
inline array buffer(detail::cl_object<struct _cl_mem> mem, std::int64_t offset = 0)
{
    array a;
    a.buffer = mem.get();
    a.offset = offset;
    a.whole = 1;
    return a;
}
inline array buffer(detail::cl_object<struct _cl_mem> mem, clt_dtype dtype,
                    std::initializer_list<std::int64_t> dims, std::int64_t offset = 0)
{
    array a;
    a.set(nullptr, dtype, static_cast<std::size_t>(clt_dtype_size(dtype)), dims.begin(),
          dims.size());
    a.host = nullptr;
    a.bytes = 0;
    a.buffer = mem.get();
    a.offset = offset;
    return a;
}

/* An input of a batch: {"x", x}. The name and the memory must live as long as clt_feed says. */
class feed : public clt_feed
{
  public:
    feed(const char *input, const clt::array &memory, int on = -1) : clt_feed()
    {
        name = input;
        device = on;
        array = memory;
    }
    /* A step reads the memory after the call, when a temporary is gone. */
    template <class C, std::enable_if_t<!std::is_base_of_v<clt_array, std::decay_t<C>>, int> = 0>
    feed(const char *input, C &&container, int on = -1)
        : feed(input, clt::array(std::forward<C>(container)), on)
    {
        static_assert(std::disjunction_v<std::is_lvalue_reference<C>,
                                         detail::outlives<std::remove_reference_t<C>>>,
                      "this container dies before the library reads it: give it a name");
    }
};

/* Where an output goes: {"prediction", y}. */
class fetch : public clt_fetch
{
  public:
    fetch(const char *output, const clt::array &memory, int on = -1) : clt_fetch()
    {
        name = output;
        device = on;
        array = memory;
        if (!memory.writable()) {
            array = clt_array(); /* no memory, which the library refuses */
            detail::refuse(std::string("the fetch of ") + output + " goes to const memory");
        }
    }
};
static_assert(sizeof(feed) == sizeof(clt_feed) && sizeof(fetch) == sizeof(clt_fetch));

namespace detail
{

/* Bytes of tensors, which calls with a size take. */
class bytes_in
{
  public:
    bytes_in(const void *data, std::size_t size) : data_(data), size_(size)
    {
    }
    template <class C, class E = data_of<const C>>
    bytes_in(const C &container)
        : data_(std::data(container)), size_(std::size(container) * sizeof(E))
    {
        static_assert(sizeof(E) < 8,
                      "this call copies the bytes of a tensor, which has no elements "
                      "of 64 bits: set_array converts them");
    }
    const void *data() const
    {
        return data_;
    }
    std::size_t size() const
    {
        return size_;
    }

  private:
    const void *data_;
    std::size_t size_;
};

class bytes_out
{
  public:
    bytes_out(void *data, std::size_t size) : data_(data), size_(size)
    {
    }
    template <class C, class E = data_of<C>>
    bytes_out(C &&container) : data_(std::data(container)), size_(std::size(container) * sizeof(E))
    {
        static_assert(!std::is_const_v<E>, "the call writes to this container, which is const");
        static_assert(sizeof(E) < 8,
                      "this call copies the bytes of a tensor, which has no elements "
                      "of 64 bits: get_array converts them");
    }
    void *data() const
    {
        return data_;
    }
    std::size_t size() const
    {
        return size_;
    }

  private:
    void *data_;
    std::size_t size_;
};

} /* namespace detail */

} /* namespace clt */

! What all of module cltrain stands on: handles, errors, strings, and memory that lives with an object.
! Programs use module cltrain.
module cltrain_core
  use, intrinsic :: iso_c_binding
  implicit none
  public

  ! The part that all handles share: the object, and the number of its slot (handles.c). The first component
  ! has the address of the handle.
  type :: clt_handle
    type(c_ptr) :: object = c_null_ptr
    integer(c_int64_t) :: id = 0
  end type

  interface
    function clt_f_own(object, count, destroy, destroy_array) bind(c) result(id)
      import
      type(c_ptr), value :: object
      integer(c_int), value :: count
      type(c_funptr), value :: destroy, destroy_array
      integer(c_int64_t) :: id
    end function
    function clt_f_lend(object) bind(c) result(id)
      import
      type(c_ptr), value :: object
      integer(c_int64_t) :: id
    end function
    subroutine clt_f_need(id, needed) bind(c)
      import
      integer(c_int64_t), value :: id, needed
    end subroutine
    function clt_f_share(handle, id, old) bind(c) result(wrong)
      import
      type(c_ptr), intent(in) :: handle
      integer(c_int64_t), value :: id
      integer(c_int64_t), intent(in) :: old
      integer(c_int) :: wrong
    end function
    function clt_f_end(handle) bind(c) result(assigned)
      import
      type(c_ptr), value :: handle
      integer(c_int) :: assigned
    end function
    subroutine clt_f_retain(id) bind(c)
      import
      integer(c_int64_t), value :: id
    end subroutine
    subroutine clt_f_release(id) bind(c)
      import
      integer(c_int64_t), value :: id
    end subroutine
    subroutine clt_f_close(id) bind(c)
      import
      integer(c_int64_t), value :: id
    end subroutine
    function clt_f_is_open(id) bind(c) result(open)
      import
      integer(c_int64_t), value :: id
      integer(c_int) :: open
    end function
    function clt_f_stale(id, call, argument) bind(c) result(status)
      import
      integer(c_int64_t), value :: id
      character(c_char), intent(in) :: call(*), argument(*)
      integer(c_int) :: status
    end function
    function clt_f_live() bind(c) result(live)
      import
      integer(c_int64_t) :: live
    end function
    subroutine clt_f_set_number(id, number) bind(c)
      import
      integer(c_int64_t), value :: id
      integer(c_int), value :: number
    end subroutine
    function clt_f_number(id) bind(c) result(number)
      import
      integer(c_int64_t), value :: id
      integer(c_int) :: number
    end function

    ! Memory that a call keeps: until its end, or as long as the object that it made.
    function clt_f_room(kept, bytes) bind(c) result(memory)
      import
      type(c_ptr), intent(inout) :: kept
      integer(c_size_t), value :: bytes
      type(c_ptr) :: memory
    end function
    subroutine clt_f_push(kept, memory, release) bind(c)
      import
      type(c_ptr), intent(inout) :: kept
      type(c_ptr), value :: memory
      type(c_funptr), value :: release
    end subroutine
    subroutine clt_f_push_need(kept, id) bind(c)
      import
      type(c_ptr), intent(inout) :: kept
      integer(c_int64_t), value :: id
    end subroutine
    subroutine clt_f_hand_over(kept, id) bind(c)
      import
      type(c_ptr), intent(inout) :: kept
      integer(c_int64_t), value :: id
    end subroutine

    function clt_f_world_new() bind(c) result(world)
      import
      type(c_ptr) :: world
    end function
    subroutine clt_f_world_free(world) bind(c)
      import
      type(c_ptr), value :: world
    end subroutine

    ! Arrays of Fortran; see arrays.h.
    function clt_f_array(call, what, array, out) bind(c) result(status)
      import
      character(c_char), intent(in) :: call(*), what(*)
      type(*), dimension(..), intent(in) :: array
      type(c_ptr), value :: out
      integer(c_int) :: status
    end function
    function clt_f_memory(call, what, array, memory, bytes) bind(c) result(status)
      import
      character(c_char), intent(in) :: call(*), what(*)
      type(*), dimension(..), intent(in) :: array
      type(c_ptr), intent(out) :: memory
      integer(c_size_t), intent(out) :: bytes
      integer(c_int) :: status
    end function
    function clt_f_array_bytes() bind(c) result(bytes)
      import
      integer(c_size_t) :: bytes
    end function

    function clt_f_error_message() bind(c, name='clt_error_message') result(text)
      import
      type(c_ptr) :: text
    end function
    function clt_f_error_set(status, text) bind(c, name='clt_error_set') result(same)
      import
      integer(c_int), value :: status
      character(c_char), intent(in) :: text(*)
      integer(c_int) :: same
    end function
    function clt_f_strlen(text) bind(c, name='strlen') result(length)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
    subroutine clt_f_free(memory) bind(c, name='free')
      import
      type(c_ptr), value :: memory
    end subroutine
  end interface

  integer, target, save :: clt_nobody = 0 ! what callbacks get whose program gave no data

contains

  ! Ends a call: hands its status to stat and errmsg. Without stat a failure ends the program, as that
  ! of an allocate statement does.
  subroutine clt_report(status, stat, errmsg)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(:), allocatable :: text
    if (present(stat)) stat = status
    if (status == 0) return
    text = clt_text(clt_f_error_message())
    if (present(errmsg)) errmsg = text
    if (.not. present(stat)) error stop text
  end subroutine

  ! Sets the message of a failure that Fortran found.
  function clt_refuse(call, text) result(status)
    character(*), intent(in) :: call, text
    integer(c_int) :: status
    status = clt_f_error_set(1_c_int, call // ': ' // text // c_null_char)
  end function

  ! Returns the object of a handle. Sets status if the handle may not be used.
  function clt_in(handle, call, argument, status) result(object)
    class(clt_handle), intent(in) :: handle
    character(*), intent(in) :: call, argument
    integer(c_int), intent(inout) :: status
    type(c_ptr) :: object
    object = c_null_ptr
    if (status /= 0) return
    if (clt_f_is_open(handle%id) == 0) then
      status = clt_f_stale(handle%id, call // c_null_char, argument // c_null_char)
    else
      object = handle%object
    end if
  end function

  ! Returns the object of a handle of a value or operator; null if it may not be used.
  function clt_weak(handle) result(object)
    class(clt_handle), intent(in), optional :: handle
    type(c_ptr) :: object
    object = c_null_ptr
    if (.not. present(handle)) return
    if (clt_f_is_open(handle%id) /= 0) object = handle%object
  end function

  ! The same where a call can fail: sets status if the value's graph was destroyed.
  function clt_value_in(handle, call, argument, status) result(object)
    class(clt_handle), intent(in) :: handle
    character(*), intent(in) :: call, argument
    integer(c_int), intent(inout) :: status
    type(c_ptr) :: object
    object = clt_weak(handle)
    if (status == 0 .and. handle%id /= 0 .and. clt_f_is_open(handle%id) == 0) &
        status = clt_f_stale(handle%id, call // c_null_char, argument // c_null_char)
  end function

  ! Returns an array of the objects of handles.
  function clt_in_all(handles, call, argument, kept, status) result(objects)
    class(clt_handle), intent(in) :: handles(:)
    character(*), intent(in) :: call, argument
    type(c_ptr), intent(inout) :: kept
    integer(c_int), intent(inout) :: status
    type(c_ptr) :: objects
    type(c_ptr), pointer :: list(:)
    integer :: i
    objects = clt_room(kept, int(max(size(handles), 1), c_size_t) * c_sizeof(c_null_ptr))
    call c_f_pointer(objects, list, [size(handles)])
    do i = 1, size(handles)
      list(i) = clt_in(handles(i), call, argument, status)
    end do
  end function

  ! The objects live as long as what the call keeps.
  subroutine clt_keep_all(handles, kept)
    class(clt_handle), intent(in) :: handles(:)
    type(c_ptr), intent(inout) :: kept
    integer :: i
    do i = 1, size(handles)
      call clt_f_push_need(kept, handles(i)%id)
    end do
  end subroutine

  function clt_weak_all(handles, kept) result(objects)
    class(clt_handle), intent(in) :: handles(:)
    type(c_ptr), intent(inout) :: kept
    type(c_ptr) :: objects
    type(c_ptr), pointer :: list(:)
    integer :: i
    objects = clt_room(kept, int(max(size(handles), 1), c_size_t) * c_sizeof(c_null_ptr))
    call c_f_pointer(objects, list, [size(handles)])
    do i = 1, size(handles)
      list(i) = clt_weak(handles(i))
    end do
  end function

  ! Makes a handle of a new object. What the handle stood for before is released.
  subroutine clt_own(handle, object, destroy, kept, status)
    class(clt_handle), intent(inout) :: handle
    type(c_ptr), intent(in) :: object
    type(c_funptr), value :: destroy ! by reference, gfortran would put the address in read-only memory
    type(c_ptr), intent(inout) :: kept
    integer(c_int), intent(inout) :: status
    integer(c_int64_t) :: id
    id = clt_f_own(object, 0_c_int, destroy, c_null_funptr)
    if (id == 0) then
      status = 2
      return
    end if
    call clt_f_hand_over(kept, id)
    call clt_adopt(handle, object, id)
  end subroutine

  ! Makes a handle stand for an object.
  subroutine clt_adopt(handle, object, id)
    class(clt_handle), intent(inout) :: handle
    type(c_ptr), intent(in) :: object
    integer(c_int64_t), intent(in) :: id
    select case (clt_f_share(handle%object, id, handle%id))
    case (1)
      error stop 'cltrain: host memory does not suffice'
    case (2)
      error stop 'cltrain: a handle is assigned to that is not allocated; allocate it first'
    end select
    handle%object = object
    handle%id = id
  end subroutine

  ! Destroys an object for all its handles. A handle without an object is left alone, as NULL is in C.
  subroutine clt_destroy(handle, call, argument, stat, errmsg)
    class(clt_handle), intent(in) :: handle
    character(*), intent(in) :: call, argument
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = 0
    if (handle%id /= 0) then
      if (clt_f_is_open(handle%id) == 0) then
        status = clt_f_stale(handle%id, call // c_null_char, argument // c_null_char)
      else
        call clt_f_close(handle%id)
      end if
    end if
    call clt_report(status, stat, errmsg)
  end subroutine

  ! to = from for handles: both then stand for the same object.
  subroutine clt_share(to, from)
    class(clt_handle), intent(inout) :: to
    class(clt_handle), intent(in) :: from
    call clt_adopt(to, from%object, from%id)
  end subroutine

  ! Memory of zeros that the call keeps.
  function clt_room(kept, bytes) result(memory)
    type(c_ptr), intent(inout) :: kept
    integer(c_size_t), intent(in) :: bytes
    type(c_ptr) :: memory
    memory = clt_f_room(kept, bytes)
    if (.not. c_associated(memory)) error stop 'cltrain: host memory does not suffice'
  end function

  ! C's form of a text, without trailing blanks; null if it is absent. Without `status` a text that C would
  ! cut ends the program.
  function clt_chars(text, kept, call, argument, status) result(chars)
    character(*), intent(in), optional :: text
    type(c_ptr), intent(inout) :: kept
    character(*), intent(in) :: call, argument
    integer(c_int), intent(inout), optional :: status
    type(c_ptr) :: chars
    character(c_char), pointer :: list(:)
    integer(c_int) :: whole
    integer :: i, length
    chars = c_null_ptr
    if (.not. present(text)) return
    whole = 0
    call clt_need_whole(text, call, argument, whole)
    if (whole /= 0) then
      if (.not. present(status)) call clt_report(whole)
      if (status == 0) status = whole
      return
    end if
    length = len_trim(text)
    chars = clt_room(kept, int(length + 1, c_size_t))
    call c_f_pointer(chars, list, [length + 1])
    do i = 1, length
      list(i) = text(i:i)
    end do
    list(length + 1) = c_null_char
  end function

  ! Sets status if a text has the character that ends texts in C.
  subroutine clt_need_whole(text, call, argument, status)
    character(*), intent(in) :: text, call, argument
    integer(c_int), intent(inout) :: status
    character(24) :: place
    if (status /= 0 .or. index(text, c_null_char) == 0) return
    write (place, '(i0)') index(text, c_null_char)
    status = clt_refuse(call, argument // ' has char(0) at place ' // trim(place) // &
        ', where C would cut the text: leave it out')
  end subroutine

  ! A text of C; '' for null.
  function clt_text(chars) result(text)
    type(c_ptr), intent(in) :: chars
    character(:), allocatable :: text
    character(c_char), pointer :: list(:)
    integer :: i, length
    text = ''
    if (.not. c_associated(chars)) return
    length = int(clt_f_strlen(chars))
    call c_f_pointer(chars, list, [length])
    deallocate (text)
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = list(i)
    end do
  end function

  ! Characters up to the first 0 byte, and the reverse.
  function clt_joined(list) result(text)
    character(c_char), intent(in) :: list(:)
    character(size(list)) :: text
    integer :: i
    text = ''
    do i = 1, size(list)
      if (list(i) == c_null_char) exit
      text(i:i) = list(i)
    end do
  end function

  subroutine clt_spread(text, list)
    character(*), intent(in) :: text
    character(c_char), intent(out) :: list(:)
    integer :: i
    list = c_null_char
    do i = 1, min(len_trim(text), size(list) - 1)
      list(i) = text(i:i)
    end do
  end subroutine

  ! Copies numbers to memory that the call keeps.
  ! C reads at most `most` elements. Those that the program did not give are -1 or NaN, which C refuses.
  function clt_longs(values, kept, most) result(memory)
    integer(c_int64_t), intent(in) :: values(:)
    type(c_ptr), intent(inout) :: kept
    integer, intent(in), optional :: most
    type(c_ptr) :: memory
    integer(c_int64_t), pointer :: list(:)
    integer :: n
    n = size(values)
    if (present(most)) n = max(n, most)
    memory = clt_room(kept, int(max(n, 1), c_size_t) * 8_c_size_t)
    call c_f_pointer(memory, list, [n])
    list = -1
    list(:size(values)) = values
  end function

  function clt_ints(values, kept) result(memory)
    integer(c_int), intent(in) :: values(:)
    type(c_ptr), intent(inout) :: kept
    type(c_ptr) :: memory
    integer(c_int), pointer :: list(:)
    memory = clt_room(kept, int(max(size(values), 1), c_size_t) * c_sizeof(0_c_int))
    call c_f_pointer(memory, list, [size(values)])
    list = values
  end function

  function clt_reals(values, kept, most) result(memory)
    use, intrinsic :: ieee_arithmetic, only: ieee_quiet_nan, ieee_value
    real(c_double), intent(in) :: values(:)
    type(c_ptr), intent(inout) :: kept
    integer, intent(in), optional :: most
    type(c_ptr) :: memory
    real(c_double), pointer :: list(:)
    integer :: n
    n = size(values)
    if (present(most)) n = max(n, most)
    memory = clt_room(kept, int(max(n, 1), c_size_t) * 8_c_size_t)
    call c_f_pointer(memory, list, [n])
    list = ieee_value(0._c_double, ieee_quiet_nan)
    list(:size(values)) = values
  end function

  ! Dimensions in the other order.
  pure function clt_reversed(values) result(reversed)
    integer(c_int64_t), intent(in) :: values(:)
    integer(c_int64_t) :: reversed(size(values))
    reversed = values(size(values):1:-1)
  end function

  ! A permutation of dimensions 1, 2, .. as one of C's axes.
  pure function clt_axes_permuted(values) result(axes)
    integer(c_int), intent(in) :: values(:)
    integer(c_int) :: axes(size(values))
    axes = size(values) - values(size(values):1:-1)
  end function

  ! Sets status if an array has fewer elements than the call needs.
  subroutine clt_need_size(given, needed, call, argument, status)
    integer, intent(in) :: given
    integer(c_int64_t), intent(in) :: needed
    character(*), intent(in) :: call, argument
    integer(c_int), intent(inout) :: status
    character(24) :: had, wanted
    if (status /= 0 .or. given >= needed) return
    write (had, '(i0)') given
    write (wanted, '(i0)') needed
    status = clt_refuse(call, argument // ' has ' // trim(had) // ' elements; it needs ' // trim(wanted))
  end subroutine

  ! The same for an array that describes each dimension of a value.
  subroutine clt_need_rank(given, rank, call, argument, status)
    integer, intent(in) :: given
    integer(c_int), intent(in) :: rank
    character(*), intent(in) :: call, argument
    integer(c_int), intent(inout) :: status
    character(24) :: had, wanted
    if (status /= 0 .or. given == rank) return
    write (had, '(i0)') given
    write (wanted, '(i0)') rank
    status = clt_refuse(call, argument // ' has ' // trim(had) // ' numbers; the value has ' // &
        trim(wanted) // ' dimensions')
  end subroutine
end module

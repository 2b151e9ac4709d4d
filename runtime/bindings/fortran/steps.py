"""Writes cltrain_steps.f90: steps and predictions on arrays of the program. Its procedures differ in few
words, and each has the same pairs of arguments."""

import api as description

FEEDS, FETCHES = 8, 4
NAMES = ["clt_step_batch", "clt_trainer_step", "clt_trainer_forward", "clt_trainer_backward_from",
         "clt_trainer_evaluate", "clt_trainer_predict", "clt_predictor_run", "clt_step_arrays",
         "clt_predict_arrays", "clt_constant"]


def names(api):
    """Returns the names that the module adds, for what the headers have."""
    return NAMES + [name for name in ("clt_dataset_push", "clt_trainer_gradients") if name in api.function]


HEAD = """\
! Written by runtime/bindings/fortran/emit.py. Steps and predictions on arrays of the program.
!
! Arrays are passed to the call itself, as pairs of a name and an array of any rank and stride. Feeds are
! copied in the call, and fetches are filled when it returns: the compiler may have made a temporary of an
! argument, which is gone afterwards.
module cltrain_steps
  use, intrinsic :: iso_c_binding
  use cltrain_c
  use cltrain_core
  use cltrain_types
  use cltrain_calls
  implicit none
  private
  public :: clt_step_batch, clt_trainer_step, clt_trainer_forward, clt_trainer_backward_from, &
      clt_trainer_evaluate, clt_trainer_predict, clt_predictor_run, clt_step_arrays, clt_predict_arrays, &
      clt_constant

  ! What a step needs besides its arrays.
  type :: clt_step_batch
    ! Samples over all devices of this rank; -1: the last dimension of the first array that has one.
    integer(c_int64_t) :: count = -1
    integer(c_int64_t) :: first = 0 ! position of the first sample in the global batch, from 0
    ! Several ranks: samples of the global batch; 0: the ranks tell each other.
    integer(c_int64_t) :: total = 0
    ! devices + 1 numbers from 0 on: device d has the samples offsets(d) + 1 to offsets(d + 1).
    integer(c_int64_t), allocatable :: offsets(:)
    real(c_double), allocatable :: loss_weights(:) ! of each loss over the global batch
  end type

  interface
    function clt_f_list_new(call) bind(c) result(list)
      import
      character(c_char), intent(in) :: call(*)
      type(c_ptr) :: list
    end function
    subroutine clt_f_list_add(list, name, array) bind(c)
      import
      type(c_ptr), value :: list
      character(c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(in) :: array
    end subroutine
    subroutine clt_f_list_refuse(list, text) bind(c)
      import
      type(c_ptr), value :: list
      character(c_char), intent(in) :: text(*)
    end subroutine
    function clt_f_list_get(list, entries, count) bind(c) result(status)
      import
      type(c_ptr), value :: list
      type(c_ptr), intent(inout) :: entries
      integer(c_int), intent(inout) :: count
      integer(c_int) :: status
    end function
    function clt_f_list_samples(list) bind(c) result(samples)
      import
      type(c_ptr), value :: list
      integer(c_int64_t) :: samples
    end function
    function clt_f_list_arrays(list, arrays, count) bind(c) result(status)
      import
      type(c_ptr), value :: list
      type(c_ptr), intent(inout) :: arrays
      integer(c_int), intent(inout) :: count
      integer(c_int) :: status
    end function
    subroutine clt_f_list_free(list) bind(c)
      import
      type(c_ptr), value :: list
    end subroutine
    function clt_f_constant(graph, array, value) bind(c) result(status)
      import
      type(c_ptr), value :: graph
      type(*), dimension(..), intent(in) :: array
      type(c_ptr), intent(out) :: value
      integer(c_int) :: status
    end function
  end interface

contains

  ! Makes the batch of lists of feeds and fetches. The lists must live until the call has ended.
  subroutine begin(feeds, fetches, batch, c, kept, status)
    type(c_ptr), intent(in) :: feeds, fetches
    type(clt_step_batch), intent(in), optional :: batch
    type(c_clt_step_batch), target, intent(inout) :: c
    type(c_ptr), intent(inout) :: kept
    integer(c_int), intent(inout) :: status
    call c_clt_step_batch_init(c_loc(c))
    if (status == 0) status = clt_f_list_get(feeds, c%feeds, c%n_feeds)
    if (status == 0) status = clt_f_list_get(fetches, c%fetches, c%n_fetches)
    if (status /= 0) return
    c%copied = 1
    c%count = clt_f_list_samples(feeds)
    if (.not. present(batch)) return
    if (batch%count >= 0) c%count = batch%count
    c%first = batch%first
    c%total = batch%total
    if (allocated(batch%offsets)) c%offsets = clt_longs(batch%offsets, kept, MOST_OFFSETS)
    if (allocated(batch%loss_weights)) c%loss_weights = clt_reals(batch%loss_weights, kept, &
        MOST_LOSSES)
  end subroutine

  ! The name of a feed or a fetch may not end before its end.
  subroutine check_name(list, name, argument)
    type(c_ptr), intent(in) :: list
    character(*), intent(in) :: name, argument
    if (index(name, c_null_char) > 0) call clt_f_list_refuse(list, argument // &
        ' has char(0), where C would cut the text: leave it out' // c_null_char)
  end subroutine

  ! Adds a constant to a graph, with the shape of the array. real(8) becomes f32, integer(8) i32.
  function clt_constant(graph, data, stat, errmsg) result(value)
    type(clt_graph), intent(in) :: graph
    type(*), dimension(..), intent(in) :: data
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(clt_value) :: value
    integer(c_int) :: status
    type(c_ptr) :: object
    status = 0
    object = clt_in(graph, 'clt_constant', 'graph', status)
    if (status == 0) status = clt_f_constant(object, data, value%object)
    if (status == 0) value%id = graph%id
    call clt_report(status, stat, errmsg)
  end function
"""

STEP_DOC = """\
Enqueues a training step. The arrays are copied: they may change at once. An error of an earlier step may
show here. clt_trainer_result gives the loss."""
LOSS_DOC = """\
Makes a training step. With `loss` it waits for the step and gives the loss, which is that before the
update."""
FORWARD_DOC = "The first part of a step: forward on all devices. The arrays are copied."
FROM_DOC = """\
Backward with gradients of outputs (clt_output_gradient). Waits for the devices, which read the arrays."""
EVALUATE_DOC = """\
Evaluates one batch and waits. Adds to sums and weights, which have a number for each loss, then for each
metric."""
PREDICT_DOC = "Computes outputs of the graph, as in evaluation. They are there when the call returns."
PUSH_DOC = """\
Pushes samples into a reservoir: an array for each field, in the order of the fields, whose last dimension
counts the samples. The samples are copied."""
RUN_DOC = """\
Computes the outputs of a batch, and gives carried states their next values. The outputs are there when the
call returns."""


def pairs(name, array, count, needed):
    """Returns the arguments name, array, name2, array2, .. with whether they are optional."""
    rows = []
    for i in range(1, count + 1):
        suffix = "" if i == 1 else str(i)
        rows.append((name + suffix, array + suffix, i > needed))
    return rows


def emit(out, name, doc, handle, feeds=1, fetches=None, extra=(), batch=True, body=()):
    """Writes one procedure. feeds and fetches: how many of them must be given; fetches None: none may."""
    ins = pairs("name", "array", FEEDS, feeds)
    outs = [] if fetches is None else pairs("fetch", "into", FETCHES, fetches)
    needed = [a for row in ins + outs if not row[2] for a in row[:2]]
    rest = [a for row in ins + outs if row[2] for a in row[:2]]
    first = handle[4:]
    names = [first] + [e[0] for e in extra if e[2]] + needed + rest + [e[0] for e in extra if e[2] is False] + \
        (["batch"] if batch else []) + ["stat", "errmsg"]
    out.note(doc)
    out.open(f"subroutine {name}({', '.join(names)})")
    out.put(f"type({handle}), intent(in) :: {first}")
    for e in extra:
        out.put(e[1])
    for label, array, optional in ins + outs:
        mark = ", optional" if optional else ""
        intent = "inout" if array.startswith("into") else "in"
        out.put(f"character(*), intent(in){mark} :: {label}",
                f"type(*), dimension(..), intent({intent}){mark} :: {array}")
    if batch:
        out.put("type(clt_step_batch), intent(in), optional :: batch")
    out.put("integer, intent(out), optional :: stat", "character(*), intent(inout), optional :: errmsg",
            f"character(*), parameter :: call_ = '{name}'", "type(c_clt_step_batch), target :: c",
            "type(c_ptr) :: object, feeds, fetches, kept", "integer(c_int) :: status", "status = 0",
            "kept = c_null_ptr", f"object = clt_in({first}, call_, '{first}', status)",
            "feeds = clt_f_list_new(call_ // c_null_char)", "fetches = clt_f_list_new(call_ // c_null_char)")
    for rows, to in ((ins, "feeds"), (outs, "fetches")):
        for label, array, optional in rows:
            add = f"call clt_f_list_add({to}, trim({label}) // c_null_char, {array})"
            check = f"call check_name({to}, {label}, '{label}')"
            if not optional:
                out.put(check, add)
                continue
            out.put(f"if (present({label}) .and. present({array})) then", "  " + check, "  " + add,
                    f"else if (present({label}) .or. present({array})) then",
                    f"  call clt_f_list_refuse({to}, '{label} and {array} belong together' // c_null_char)",
                    "end if")
    out.put("call begin(feeds, fetches, " + ("batch, c, kept, status)" if batch else "c=c, kept=kept, status=status)"))
    if batch:
        out.put("if (status == 0 .and. c%count < 0) &",
                "    status = clt_refuse(call_, 'no array has a dimension that counts the samples')")
    out.put(*body)
    out.put("call clt_f_list_free(feeds)", "call clt_f_list_free(fetches)",
            "call clt_f_hand_over(kept, 0_c_int64_t)", "call clt_report(status, stat, errmsg)")
    out.close("end subroutine")
    out.put("")


def emit_push(out):
    """Writes clt_dataset_push: an array for each field, in the order of the fields."""
    arrays = ["array"] + [f"array{i}" for i in range(2, FEEDS + 1)]
    out.note(PUSH_DOC)
    out.open(f"subroutine clt_dataset_push(reservoir, {', '.join(arrays)}, weights, stat, errmsg)")
    out.put("type(clt_dataset), intent(in) :: reservoir", "type(*), dimension(..), intent(in) :: array",
            f"type(*), dimension(..), intent(in), optional :: {', '.join(arrays[1:])}",
            "real(c_double), intent(in), optional :: weights(:)", "integer, intent(out), optional :: stat",
            "character(*), intent(inout), optional :: errmsg", "character(*), parameter :: call_ = 'clt_dataset_push'",
            "type(c_ptr) :: object, fields, kept, numbers, entries", "integer(c_int) :: status, count", "status = 0",
            "kept = c_null_ptr", "numbers = c_null_ptr", "object = clt_in(reservoir, call_, 'reservoir', status)",
            "fields = clt_f_list_new(call_ // c_null_char)")
    for name in arrays:
        add = f"call clt_f_list_add(fields, '{name}' // c_null_char, {name})"
        out.put(add if name == "array" else f"if (present({name})) {add}")
    out.put("if (status == 0) status = clt_f_list_arrays(fields, entries, count)",
            "if (status == 0 .and. present(weights)) then",
            "  call clt_need_size(size(weights), clt_f_list_samples(fields), call_, 'weights', status)",
            "  numbers = clt_reals(weights, kept)", "end if",
            "if (status == 0) status = c_clt_dataset_push(object, entries, count, numbers)",
            "call clt_f_list_free(fields)", "call clt_f_hand_over(kept, 0_c_int64_t)",
            "call clt_report(status, stat, errmsg)")
    out.close("end subroutine")
    out.put("")


def emit_all(out, api):
    """Writes the module."""
    head = HEAD.replace("MOST_OFFSETS", str(description.GUARDED["clt_step_batch", "offsets"]))
    head = head.replace("MOST_LOSSES", str(description.GUARDED["clt_step_batch", "loss_weights"]))
    head = head.replace("clt_constant\n", ", ".join(names(api)[len(NAMES) - 1:]) + "\n", 1)
    out.lines = head.splitlines() + [""]
    out.depth = 1
    emit(out, "clt_trainer_step", STEP_DOC, "clt_trainer", fetches=0, body=(
        "if (status == 0) status = c_clt_trainer_step(object, c_loc(c), c_null_ptr)",))
    loss = ("loss", "real(c_double), intent(out), optional :: loss", False)
    emit(out, "clt_step_arrays", LOSS_DOC, "clt_trainer", extra=(
        loss, ("r", "type(clt_step_result) :: r", None), ("code", "integer :: code", None)), body=(
            "if (status == 0) status = c_clt_trainer_step(object, c_loc(c), c_null_ptr)",
            "if (status == 0 .and. present(loss)) then",
            "  call clt_trainer_result(trainer, clt_trainer_steps(trainer) - 1, r, stat=code)",
            "  status = int(code, c_int)", "  if (status == 0) loss = r%loss", "end if"))
    emit(out, "clt_trainer_forward", FORWARD_DOC, "clt_trainer", fetches=0, body=(
        "if (status == 0) status = c_clt_trainer_forward(object, c_loc(c))",))
    if "clt_trainer_gradients" in api.function:
        emit(out, "clt_trainer_gradients", api.function["clt_trainer_gradients"]["doc"], "clt_trainer", body=(
            "if (status == 0) status = c_clt_trainer_gradients(object, c_loc(c))",))
    emit(out, "clt_trainer_backward_from", FROM_DOC, "clt_trainer", batch=False, body=(
        "if (status == 0) status = c_clt_trainer_backward_from(object, c%feeds, c%n_feeds)",
        "if (status == 0) status = c_clt_trainer_wait(object)"))
    emit(out, "clt_trainer_evaluate", EVALUATE_DOC, "clt_trainer", extra=(
        ("sums", "real(c_double), intent(inout), contiguous, target :: sums(:)", True),
        ("weights", "real(c_double), intent(inout), contiguous, target :: weights(:)", True)), body=(
            "call clt_need_size(size(sums), int(clt_f_number(trainer%id), c_int64_t), call_, 'sums', status)",
            "call clt_need_size(size(weights), int(clt_f_number(trainer%id), c_int64_t), call_, 'weights', status)",
            "if (status == 0) status = c_clt_trainer_evaluate(object, c_loc(c), c_loc(sums), c_loc(weights))"))
    for name in ("clt_trainer_predict", "clt_predict_arrays"):
        emit(out, name, PREDICT_DOC, "clt_trainer", fetches=1, body=(
            "if (status == 0) status = c_clt_trainer_predict(object, c_loc(c), c_null_ptr)",
            "if (status == 0) status = c_clt_trainer_wait(object)"))
    emit(out, "clt_predictor_run", RUN_DOC, "clt_predictor", fetches=1, body=(
        "if (status == 0) status = c_clt_predictor_run(object, c_loc(c), c_null_ptr)",
        "if (status == 0) status = c_clt_predictor_wait(object)"))
    if "clt_dataset_push" in api.function:
        emit_push(out)
    out.close("end module")
    return out

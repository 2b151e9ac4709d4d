! Policies of a program's own: what follows from the evaluations of a run of clt_fit. See the header
! cltrain/policy.h. Programs use module cltrain.
module cltrain_policies
  use, intrinsic :: iso_c_binding
  use, intrinsic :: ieee_arithmetic, only: ieee_value, ieee_quiet_nan
  use cltrain_c
  use cltrain_core
  use cltrain_types
  implicit none
  private
  public :: clt_policy_run, clt_evaluation, clt_policy_create, clt_evaluation_value, clt_policy_trainer, &
      clt_policy_stop, clt_policy_keep, clt_policy_lr, clt_policy_set_lr, clt_policy_begin, clt_policy_evaluated, &
      clt_policy_save

  ! The run, for a policy during its calls.
  type :: clt_policy_run
    private
    type(c_ptr) :: object = c_null_ptr
  end type

  ! The metrics of an evaluation. A value is NaN if no sample had a weight.
  type :: clt_evaluation
    integer(c_int64_t) :: step = 0  ! steps done
    integer(c_int64_t) :: epoch = 0 ! 1 is the first
    character(160), allocatable :: names(:)
    real(c_double), allocatable :: values(:)
  end type

  abstract interface
    ! The run begins. `state` is what `save` gave for the checkpoint from which the run resumes. A result other
    ! than 0 ends the run, with the message of clt_error_set.
    function clt_policy_begin(user, run, state) result(stat)
      import
      class(*), intent(inout) :: user
      type(clt_policy_run), intent(in) :: run
      character(*), intent(in), optional :: state
      integer(c_int) :: stat
    end function
    ! After each evaluation. A result other than 0 ends the run.
    function clt_policy_evaluated(user, run, evaluation) result(stat)
      import
      class(*), intent(inout) :: user
      type(clt_policy_run), intent(in) :: run
      type(clt_evaluation), intent(in) :: evaluation
      integer(c_int) :: stat
    end function
    ! Gives the state as one JSON value, before each checkpoint.
    function clt_policy_save(user) result(json)
      import
      class(*), intent(inout) :: user
      character(:), allocatable :: json
    end function
  end interface

  type :: policy_calls
    procedure(clt_policy_begin), pointer, nopass :: begin => null()
    procedure(clt_policy_evaluated), pointer, nopass :: evaluated => null()
    procedure(clt_policy_save), pointer, nopass :: save => null()
    class(*), pointer :: user => null()
  end type

  interface
    function clt_f_policy_new(name, user, begin, evaluated, save, destroy) bind(c) result(policy)
      import
      type(c_ptr), value :: name, user
      type(c_funptr), value :: begin, evaluated, save, destroy
      type(c_ptr) :: policy
    end function
    subroutine clt_f_policy_free(policy) bind(c)
      import
      type(c_ptr), value :: policy
    end subroutine
    function clt_f_copy(text) bind(c) result(copy)
      import
      character(c_char), intent(in) :: text(*)
      type(c_ptr) :: copy
    end function
  end interface

contains

  ! Makes a policy of procedures, each of which may be left out. `name` is that of its state in checkpoints.
  ! The procedures get `user`, which must live as long as the policy. Errors: clt_fit has those of the name.
  subroutine clt_policy_create(name, policy, begin, evaluated, save, user, stat, errmsg)
    character(*), intent(in) :: name
    type(clt_policy), intent(inout) :: policy
    procedure(clt_policy_begin), optional :: begin
    procedure(clt_policy_evaluated), optional :: evaluated
    procedure(clt_policy_save), optional :: save
    class(*), target, intent(in), optional :: user
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(policy_calls), pointer :: calls
    type(c_funptr) :: to_begin, to_evaluated, to_save
    type(c_ptr) :: kept, chars, object
    integer(c_int) :: status
    kept = c_null_ptr
    status = 0
    chars = clt_chars(name, kept, 'clt_policy_create', 'name', status)
    to_begin = c_null_funptr
    to_evaluated = c_null_funptr
    to_save = c_null_funptr
    if (status == 0) then
      allocate (calls)
      calls%user => clt_nobody
      if (present(user)) calls%user => user
      if (present(begin)) then
        calls%begin => begin
        to_begin = c_funloc(begin_policy)
      end if
      if (present(evaluated)) then
        calls%evaluated => evaluated
        to_evaluated = c_funloc(evaluated_policy)
      end if
      if (present(save)) then
        calls%save => save
        to_save = c_funloc(save_policy)
      end if
      object = clt_f_policy_new(chars, c_loc(calls), to_begin, to_evaluated, to_save, c_funloc(free_calls))
      if (c_associated(object)) then
        call clt_own(policy, object, c_funloc(clt_f_policy_free), kept, status)
      else
        deallocate (calls)
        status = CLT_OUT_OF_MEMORY
      end if
    end if
    call clt_f_hand_over(kept, 0_c_int64_t)
    call clt_report(status, stat, errmsg)
  end subroutine

  ! The value of a metric, and NaN with found = .false. if the evaluation lacks it.
  function clt_evaluation_value(evaluation, name, found) result(value)
    type(clt_evaluation), intent(in) :: evaluation
    character(*), intent(in) :: name
    logical, intent(out), optional :: found
    real(c_double) :: value
    integer :: i
    value = ieee_value(value, ieee_quiet_nan)
    if (present(found)) found = .false.
    do i = 1, size(evaluation%names)
      if (evaluation%names(i) /= name) cycle
      value = evaluation%values(i)
      if (present(found)) found = .true.
    end do
  end function

  ! The run's trainer. Policies may read it.
  subroutine clt_policy_trainer(run, trainer)
    type(clt_policy_run), intent(in) :: run
    type(clt_trainer), intent(inout) :: trainer
    type(c_ptr) :: object
    object = c_clt_policy_trainer(run%object)
    call clt_adopt(trainer, object, clt_f_lend(object))
  end subroutine

  ! Ends the run after this call. `why` is a clause such as 'val_loss has not improved for 3 evaluations'.
  subroutine clt_policy_stop(run, why)
    type(clt_policy_run), intent(in) :: run
    character(*), intent(in) :: why
    type(c_ptr) :: kept
    kept = c_null_ptr
    call c_clt_policy_stop(run%object, clt_chars(why, kept, 'clt_policy_stop', 'why'))
    call clt_f_hand_over(kept, 0_c_int64_t)
  end subroutine

  ! Makes the state after this evaluation the run's best one.
  subroutine clt_policy_keep(run, why)
    type(clt_policy_run), intent(in) :: run
    character(*), intent(in), optional :: why
    type(c_ptr) :: kept
    kept = c_null_ptr
    call c_clt_policy_keep(run%object, clt_chars(why, kept, 'clt_policy_keep', 'why'))
    call clt_f_hand_over(kept, 0_c_int64_t)
  end subroutine

  ! The base learning rate of the steps to come.
  function clt_policy_lr(run) result(lr)
    type(clt_policy_run), intent(in) :: run
    real(c_double) :: lr
    lr = c_clt_policy_lr(run%object)
  end function

  subroutine clt_policy_set_lr(run, lr, why, stat, errmsg)
    type(clt_policy_run), intent(in) :: run
    real(c_double), intent(in) :: lr
    character(*), intent(in), optional :: why
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: kept, chars
    integer(c_int) :: status
    kept = c_null_ptr
    status = 0
    chars = clt_chars(why, kept, 'clt_policy_set_lr', 'why', status)
    if (status == 0) status = c_clt_policy_set_lr(run%object, lr, chars)
    call clt_f_hand_over(kept, 0_c_int64_t)
    call clt_report(status, stat, errmsg)
  end subroutine

  ! --- what C calls ---------------------------------------------------------------------------------------

  function begin_policy(user, run, state) bind(c) result(status)
    type(c_ptr), value :: user, run, state
    integer(c_int) :: status
    type(policy_calls), pointer :: calls
    call c_f_pointer(user, calls)
    if (c_associated(state)) then
      status = calls%begin(calls%user, clt_policy_run(run), clt_text(state))
    else
      status = calls%begin(calls%user, clt_policy_run(run))
    end if
  end function

  function evaluated_policy(user, run, evaluation) bind(c) result(status)
    type(c_ptr), value :: user, run, evaluation
    integer(c_int) :: status
    type(policy_calls), pointer :: calls
    type(c_clt_evaluation), pointer :: c
    type(clt_evaluation) :: native
    type(c_ptr), pointer :: names(:)
    real(c_double), pointer :: values(:)
    integer :: i
    call c_f_pointer(user, calls)
    call c_f_pointer(evaluation, c)
    call c_f_pointer(c%names, names, [int(c%count)])
    call c_f_pointer(c%values, values, [int(c%count)])
    native%step = c%step
    native%epoch = c%epoch
    native%values = values
    allocate (native%names(c%count))
    do i = 1, c%count
      native%names(i) = clt_text(names(i))
    end do
    status = calls%evaluated(calls%user, clt_policy_run(run), native)
  end function

  function save_policy(user) bind(c) result(json)
    type(c_ptr), value :: user
    type(c_ptr) :: json
    type(policy_calls), pointer :: calls
    character(:), allocatable :: text
    call c_f_pointer(user, calls)
    text = calls%save(calls%user)
    if (index(text, c_null_char) > 0) text = 'cut' ! no JSON, which ends the save with a message
    json = clt_f_copy(text // c_null_char)
  end function

  subroutine free_calls(user) bind(c)
    type(c_ptr), value :: user
    type(policy_calls), pointer :: calls
    call c_f_pointer(user, calls)
    deallocate (calls)
  end subroutine
end module

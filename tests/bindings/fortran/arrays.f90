! Arrays: types, ranks and sections that are taken, what is refused, and that nothing of the program is read
! or written after a call has returned.
program arrays
  use, intrinsic :: iso_c_binding
  use checks
  use cltrain_core, only: clt_f_array
  implicit none
  type :: pair
    integer :: a, b
  end type
  integer, parameter :: n = 24
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  character(240) :: message
  integer :: stat

  call make_trainer(3, n, store, trainer)
  call no_copies()
  call kinds()
  call refused()
  call assumed_size(n, [(1.0_8, stat = 1, 3 * n)])
  call after_the_call()
  call ranks()
  call unallocated()
  call finish()

contains

  ! The compiler gives descriptors of sections, not copies: the address is that of the first element.
  subroutine no_copies()
    real(8), target :: x(6, 8)
    integer(c_int64_t) :: view(22) ! clt_array
    integer(c_int64_t) :: address
    call expect(clt_f_array('t' // c_null_char, 'x' // c_null_char, x(2:6:2, 8:1:-1), place(view)) == 0, 'a view')
    address = transfer(c_loc(x(2, 8)), address)
    call expect(view(1) == address, 'a section begins at its first element')
    call expect(view(15) == -48, 'the last dimension comes first, and runs backwards')
    call expect(view(16) == 16, 'the first dimension comes last, and has gaps')
    call expect(all(view(7:8) == [8, 3]), 'the shape is reversed')
    call inner(x)
  end subroutine

  subroutine inner(x)
    real(8), target, intent(in) :: x(:, :)
    integer(c_int64_t) :: view(22), address
    call expect(clt_f_array('t' // c_null_char, 'x' // c_null_char, x(:, ::2), place(view)) == 0, 'a view')
    address = transfer(c_loc(x(1, 1)), address)
    call expect(view(1) == address, 'a section of a dummy argument is not copied')
  end subroutine

  function place(view)
    integer(c_int64_t), target, intent(inout) :: view(:)
    type(c_ptr) :: place
    place = c_loc(view)
  end function

  ! Training on the same numbers in any type and layout gives the same bits.
  subroutine kinds()
    real(8) :: wide(7, 2 * n), x8(3, n), y8(1, n)
    real(4) :: x4(3, n), y4(1, n)
    real(8) :: loss, other
    call numbers(x4, y4)
    x8 = x4
    y8 = y4
    wide = -9
    wide(2:6:2, 2 * n:1:-2) = x8
    call clt_trainer_evaluate_loss(x4, y4, loss)
    call clt_trainer_evaluate_loss(x8, y8, other)
    call expect(loss == other, 'real(8) gives the bits of real(4)')
    call clt_trainer_evaluate_loss(wide(2:6:2, 2 * n:1:-2), y4, other)
    call expect(loss == other, 'a section with gaps, backwards, gives the same bits')
    call clt_trainer_evaluate_loss(x8 * 1, y4 + 0, other)
    call expect(loss == other, 'expressions give the same bits')
    call clt_trainer_evaluate_loss(x4(:, [(stat, stat = 1, n)]), y4(:, [(stat, stat = 1, n)]), other)
    call expect(loss == other, 'vector subscripts give the same bits')
  end subroutine

  subroutine clt_trainer_evaluate_loss(x, y, loss)
    type(*), dimension(..), intent(in) :: x, y
    real(8), intent(out) :: loss
    real(8) :: sums(1), weights(1)
    sums = 0
    weights = 0
    call clt_trainer_evaluate(trainer, sums, weights, 'x', x, 'y', y)
    loss = sums(1) / weights(1)
  end subroutine

  subroutine refused()
    real(8) :: x(3, n), y(1, n)
    real(16) :: q(3, n)
    complex(8) :: c(3, n)
    logical :: l(3, n)
    character(3) :: s(n)
    integer(2) :: i(3, n)
    type(pair) :: p(n)
    real(8) :: sums(1), weights(1), none(0)
    integer(c_int64_t) :: view(22)
    x = 1
    y = 1
    c = 1
    l = .true.
    call clt_step_arrays(trainer, 'x', c, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'clt_step_arrays: array x is complex; the library takes real(4), real(8)')
    call clt_step_arrays(trainer, 'x', l, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array x is logical')
    ! Not by a call with names: for arrays of texts gfortran 12 passes a length that nobody expects.
    call expect(clt_f_array('t' // c_null_char, 'x' // c_null_char, s, place(view)) /= 0, 'character is refused')
    call clt_step_arrays(trainer, 'x', i, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array x is integer(2)')
    call clt_step_arrays(trainer, 'x', q, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array x is ')
    call clt_step_arrays(trainer, 'x', p, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array x is a derived type')
    call clt_step_arrays(trainer, 'x', x, 'y', y(:, :n - 1), stat=stat, errmsg=message)
    call expect_failure(stat, message, 'feed y is f64 [23, 1], and must be')
    call clt_step_arrays(trainer, 'x', x(:2, :), 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'feed x is f64 [24, 2], and must be')
    call clt_step_arrays(trainer, 'x', [1, 2, 3], 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'feed x')
    call clt_step_arrays(trainer, 'z', x, 'y', y, stat=stat, errmsg=message)
    call expect(stat /= 0 .and. index(message, 'x') > 0, 'an input is missing: ' // message)
    call clt_step_arrays(trainer, 'x', x, 'y', stat=stat, errmsg=message)
    call expect_failure(stat, message, 'name2 and array2 belong together')
    call clt_predict_arrays(trainer, 'x', x, 'guess', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'guess')
    call clt_predict_arrays(trainer, 'x', x, 'prediction', c, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array prediction is complex')
    call clt_predict_arrays(trainer, 'x', x, 'prediction', y(:, 2:), stat=stat, errmsg=message)
    call expect_failure(stat, message, 'prediction')
    call clt_trainer_evaluate(trainer, none, weights, 'x', x, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'clt_trainer_evaluate: sums has 0 elements; it needs 1')
    sums = 0
    weights = 0
    call clt_trainer_evaluate(trainer, sums, weights, 'x', x, 'y', y, stat=stat, errmsg=message)
    call expect(stat == 0, 'nothing was lost: ' // message)
    call clt_store_get_array(store, 'fc1.wieght', x, stat, message)
    call expect_failure(stat, message, 'fc1.weight')
  end subroutine

  subroutine assumed_size(m, x)
    integer, intent(in) :: m
    real(8), intent(in) :: x(*)
    real(8) :: y(1, m)
    y = 0
    call clt_step_arrays(trainer, 'x', x, 'y', y, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'array x has assumed size (*)')
  end subroutine

  ! Feeds are copied in the call: the arrays change at once behind steps that were not waited for.
  subroutine after_the_call()
    type(clt_store) :: calm_store, wild_store
    type(clt_trainer) :: calm, wild
    real(4) :: x(3, n), y(1, n), w1(3, 16), w2(3, 16)
    real(4), allocatable :: gone(:, :)
    integer :: step
    call make_trainer(3, n, calm_store, calm)
    call make_trainer(3, n, wild_store, wild)
    do step = 1, 40
      call numbers(x, y)
      x = x + step
      call clt_trainer_step(calm, 'x', x, 'y', y)
      call clt_trainer_wait(calm)
      gone = x
      call clt_trainer_step(wild, 'x', gone, 'y', y * 1)
      gone = huge(x)
      deallocate (gone)
      y = -huge(y)
    end do
    call clt_store_get_array(calm_store, 'fc1.weight', w1)
    call clt_store_get_array(wild_store, 'fc1.weight', w2)
    call expect(all(w1 == w2), 'arrays that change after the call change no bit')
  end subroutine

  ! Fetches go to any section of any kind, and are there when the call returns.
  subroutine ranks()
    real(8) :: x(3, n), wide(3, 2 * n)
    real(4) :: plain(1, n), x4(3, n), y4(1, n)
    call numbers(x4, y4)
    x = x4
    wide = -7
    call clt_predict_arrays(trainer, 'x', x, 'prediction', plain)
    call clt_predict_arrays(trainer, 'x', x, 'prediction', wide(2:2, 1::2))
    call expect(all(wide(2, 1::2) == real(plain(1, :), 8)), 'a section of real(8) has the prediction')
    call expect(all(wide(2, 2::2) == -7) .and. all(wide(1, :) == -7) .and. all(wide(3, :) == -7), &
        'nothing else was written')
    call clt_trainer_step(trainer, 'x', x, 'y', y4, stat=stat, errmsg=message)
    call expect(stat == 0, message)
  end subroutine

  subroutine unallocated()
    real(8), allocatable :: x(:, :)
    real(8) :: y(1, n)
    y = 0
    allocate (x(3, 0))
    call clt_predict_arrays(trainer, 'x', x, 'prediction', y(:, :0), stat=stat, errmsg=message)
    call expect(stat == 0, 'a batch without samples: ' // message)
  end subroutine

  subroutine numbers(x, y)
    real(4), intent(out) :: x(:, :), y(:, :)
    integer :: i
    do i = 1, size(x, 2)
      x(:, i) = [real :: mod(i, 7) - 3, mod(3 * i, 5) - 2, mod(i * i, 11) - 5] / 4
      y(1, i) = x(1, i) * x(2, i) - x(3, i)
    end do
  end subroutine
end program

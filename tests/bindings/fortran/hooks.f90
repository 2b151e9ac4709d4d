! What the callbacks of the program below do. They get the trainer of the run.
module hooked
  use, intrinsic :: iso_c_binding
  use checks
  implicit none
  type :: hooks
    integer :: begun = 0, gradients = 0, stop_after = 1000
    type(clt_trainer) :: copy ! of the handle that the last hook got
    type(clt_dataset) :: data
    real(8) :: sum = -1
  end type

contains

  ! Sets the rate of each step, and evaluates.
  function on_step_begin(user, trainer, progress) result(stop_now)
    class(*), intent(inout) :: user
    type(clt_trainer), intent(in) :: trainer
    type(clt_progress), intent(in) :: progress
    integer(c_int) :: stop_now, stat
    real(8) :: sums(1), weights(1), none(0)
    character(300) :: message
    stop_now = 0
    call clt_trainer_set_lr(trainer, 0.1d0 * progress%step)
    select type (user)
    type is (hooks)
      user%begun = user%begun + 1
      call clt_evaluate(trainer, user%data, sums=none, weights=weights, stat=stat, errmsg=message)
      call expect_failure(stat, message, 'clt_evaluate: sums has 0 elements; it needs 1')
      call clt_evaluate(trainer, user%data, sums=sums, weights=weights)
      user%sum = sums(1)
    end select
  end function

  ! Doubles the gradient of w.
  function on_gradients(user, trainer, progress) result(stop_now)
    class(*), intent(inout) :: user
    type(clt_trainer), intent(in) :: trainer
    type(clt_progress), intent(in) :: progress
    integer(c_int) :: stop_now, stat
    real(8) :: g(2, 1), nothing(2, 16), target(1, 16)
    character(300) :: message
    stop_now = 0
    call clt_trainer_gradient_array(trainer, 0, 'w', g)
    g = 2 * g
    call clt_trainer_set_gradient_array(trainer, -1, 'w', g)
    call clt_trainer_gradient_array(trainer, 0, 'v', g, stat, message)
    call expect_failure(stat, message, 'v')
    nothing = 0
    target = 0
    call clt_step_arrays(trainer, 'x', nothing, 'y', target, stat=stat, errmsg=message)
    call expect(stat == CLT_STATUS_STATE, 'no step within a step: ' // message)
    select type (user)
    type is (hooks)
      user%gradients = user%gradients + 1
      user%copy = trainer
      if (user%gradients >= user%stop_after) stop_now = 1
    end select
    call clt_trainer_destroy(trainer) ! the program's trainer stays
    call expect(progress%samples > 0, 'a hook knows its step')
  end function

  subroutine on_policy(user, step, what)
    class(*), intent(inout) :: user
    integer(c_int64_t), intent(in) :: step
    character(*), intent(in) :: what
    select type (user)
    type is (integer)
      user = int(step)
    end select
    call expect(index(what, 'patience') > 0 .or. index(what, 'improved') > 0, 'a policy says why: ' // what)
  end subroutine
end module

! Hooks that get the trainer, and policies. A regression of two weights and a bias is compared with gradient
! descent in double.
program hooks_test
  use, intrinsic :: iso_c_binding
  use checks
  use hooked
  implicit none
  integer, parameter :: n = 64, batch = 16
  real(8) :: x(2, n), y(1, n)
  type(clt_dataset) :: data
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  character(300) :: message
  integer :: i, stat

  do i = 1, n
    x(:, i) = [sin(real(i, 8)), cos(real(3 * i, 8))]
    y(1, i) = x(1, i) - 2 * x(2, i) + 0.5d0
  end do
  call clt_dataset_create_arrays('line', n, data)
  call clt_dataset_add_array(data, 'x', x)
  call clt_dataset_add_array(data, 'y', y)
  call hook()
  call policies()
  call defaults()
  call finish()

contains

  subroutine make()
    type(clt_device), allocatable :: devices(:)
    type(clt_graph) :: graph
    type(clt_value) :: prediction, sum, weight
    type(clt_trainer_options) :: options
    call open_devices(devices)
    call clt_graph_create(graph)
    prediction = clt_linear(clt_input(graph, 'x', CLT_F32, [2, CLT_BATCH]), &
        clt_parameter(graph, 'w', [2, 1], clt_init(CLT_INIT_ZERO, 0d0, 0d0)), &
        clt_parameter(graph, 'b', [1], clt_init(CLT_INIT_ZERO, 0d0, 0d0)))
    call clt_mse(prediction, clt_input(graph, 'y', CLT_F32, [1, CLT_BATCH]), sum, weight)
    call clt_loss(graph, 'loss', sum, weight, 1d0)
    call clt_store_create(graph, devices, 3, store)
    call clt_trainer_options_init(options)
    options%lr = 0.9d0
    options%batch = batch
    call clt_trainer_create(graph, store, options, trainer)
  end subroutine

  subroutine hook()
    type(clt_fit_options) :: fit
    type(hooks), target :: seen
    real(8) :: w(2), b, got(2, 1), bias(1), dw(2), db, error
    integer :: step, k
    call make()
    call clt_fit_options_init(fit)
    fit%shuffle = 0
    fit%epochs = 1
    fit%on_step_begin => on_step_begin
    fit%on_gradients => on_gradients
    fit%user => seen
    seen%data = data
    call clt_fit(trainer, data, options=fit)
    w = 0
    b = 0
    do step = 1, n / batch
      dw = 0
      db = 0
      if (step == n / batch) call expect(abs(seen%sum - sum_of_squares(w, b)) < 1e-4 * seen%sum, 'a hook evaluates')
      do k = (step - 1) * batch + 1, step * batch
        error = dot_product(w, x(:, k)) + b - y(1, k)
        dw = dw + 2 * error * x(:, k) / batch
        db = db + 2 * error / batch
      end do
      w = w - 0.1d0 * step * 2 * dw
      b = b - 0.1d0 * step * db
    end do
    call expect(seen%begun == n / batch .and. seen%gradients == n / batch, 'hooks are called in each step')
    call clt_store_get_array(store, 'w', got)
    call clt_store_get_array(store, 'b', bias)
    call expect(all(abs(got(:, 1) - w) < 1e-5) .and. abs(bias(1) - b) < 1e-5, 'the hooks set rate and gradient')
    call clt_trainer_set_lr(seen%copy, 0.1d0, stat, message)
    call expect_failure(stat, message, 'was destroyed')
    seen%gradients = 0
    seen%stop_after = 2
    fit%epochs = 3
    call clt_fit(trainer, data, options=fit, stat=stat, errmsg=message)
    call expect(stat == CLT_STOPPED .and. seen%gradients == 2, 'a hook ends the run: ' // message)
  end subroutine

  function sum_of_squares(w, b) result(sum)
    real(8), intent(in) :: w(2), b
    real(8) :: sum
    integer :: k
    sum = 0
    do k = 1, n
      sum = sum + (dot_product(w, x(:, k)) + b - y(1, k))**2
    end do
  end function

  ! A rate of 0 improves nothing: patience ends the run after its second evaluation that is no better.
  subroutine policies()
    type(clt_fit_options) :: fit
    type(clt_policy) :: patience
    type(clt_watched) :: watched
    integer, target :: stopped
    stopped = 0
    call make()
    call clt_trainer_set_lr(trainer, 0d0)
    watched%metric = 'test_loss'
    call clt_policy_patience(watched, 2, patience)
    call clt_fit_options_init(fit)
    fit%epochs = 20
    allocate (fit%policies(1))
    fit%policies(1) = patience
    fit%on_policy => on_policy
    fit%user => stopped
    call clt_fit(trainer, data, data, fit)
    call expect(stopped == 3 * n / batch .and. clt_trainer_steps(trainer) == stopped, 'a policy ends the run')
  end subroutine

  ! Defaults of an optimizer change its numbers, and nothing else.
  subroutine defaults()
    type(clt_trainer_options) :: options
    call clt_optimizer_defaults(CLT_ADAM, options, stat, message)
    call expect_failure(stat, message, 'call clt_trainer_options_init first')
    call clt_trainer_options_init(options)
    options%batch = 77
    options%variants = 'matmul=tiled'
    options%weights = [0.25d0, 0.75d0]
    call clt_optimizer_defaults(CLT_RMSPROP, options)
    call expect(options%optimizer == CLT_RMSPROP .and. options%momentum == 0 .and. options%lr == 0.01d0, &
        'the numbers of rmsprop')
    call expect(options%batch == 77 .and. options%variants == 'matmul=tiled' .and. size(options%weights) == 2, &
        'other options stay')
  end subroutine
end program

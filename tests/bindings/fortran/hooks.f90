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
  type :: counter
    integer :: count = 0, last = 0
    logical :: resumed = .false., fails = .false., cuts = .false.
    real(8) :: loss = -1
  end type
  integer, private :: user_stat
  type :: everything
    type(clt_trainer) :: trainer
    type(clt_store) :: store
    type(clt_dataset) :: data
    type(clt_policy) :: policy
    integer :: epochs = 0
    real(8) :: loss = 0
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

  ! A policy that counts evaluations over runs, lowers the rate, and ends a run at a count.
  function counter_begin(user, run, state) result(stat)
    class(*), intent(inout) :: user
    type(clt_policy_run), intent(in) :: run
    character(*), intent(in), optional :: state
    integer(c_int) :: stat
    call clt_policy_set_lr(run, -1d0, stat=user_stat)
    call expect(user_stat /= 0, 'a rate below 0')
    stat = 0
    select type (user)
    type is (counter)
      user%resumed = present(state)
      if (present(state)) read (state, *) user%count
      user_stat = 0
      if (.not. user%fails) return
      stat = CLT_UNSUPPORTED
      call clt_error_set(stat, 'the counter has had enough')
    end select
  end function

  function counter_evaluated(user, run, evaluation) result(stat)
    class(*), intent(inout) :: user
    type(clt_policy_run), intent(in) :: run
    type(clt_evaluation), intent(in) :: evaluation
    integer(c_int) :: stat
    type(clt_trainer) :: trainer
    logical :: found
    real(8) :: nothing
    stat = 0
    call clt_policy_trainer(run, trainer)
    call expect(clt_trainer_steps(trainer) == evaluation%step, 'the trainer of the run')
    nothing = clt_evaluation_value(evaluation, 'los', found)
    call expect(nothing /= nothing .and. .not. found, 'no such metric')
    select type (user)
    type is (counter)
      user%count = user%count + 1
      user%loss = clt_evaluation_value(evaluation, 'test_loss', found)
      call expect(found, 'a metric of the evaluation')
      call expect(evaluation%epoch == user%count, 'the epoch of the evaluation')
      call clt_policy_set_lr(run, clt_policy_lr(run) / 2, 'half')
      if (user%count == 1) call clt_policy_keep(run)
      if (user%count == user%last) call clt_policy_stop(run, 'the count is reached')
    end select
  end function

  function counter_save(user) result(json)
    class(*), intent(inout) :: user
    character(:), allocatable :: json
    character(20) :: text
    select type (user)
    type is (counter)
      write (text, '(i0)') user%count
      json = trim(text)
      if (user%cuts) json = json // char(0)
    end select
  end function

  ! Destroys all that the run uses.
  subroutine on_epoch(user, progress)
    class(*), intent(inout) :: user
    type(clt_progress), intent(in) :: progress
    integer :: stat
    integer(c_int64_t) :: steps
    character(300) :: message
    select type (user)
    type is (everything)
      user%epochs = user%epochs + 1
      call clt_trainer_destroy(user%trainer, stat, message)
      call clt_store_destroy(user%store, stat)
      call clt_dataset_free(user%data, stat)
      call clt_policy_destroy(user%policy, stat)
      call expect((stat == 0) .eqv. (user%epochs == 1), 'destroyed once')
      user%loss = progress%loss
      steps = clt_trainer_steps(user%trainer, stat, message)
      call expect_failure(stat, message, 'clt_trainer_steps: trainer was destroyed')
    end select
  end subroutine

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
  use cltrain_core, only: clt_f_live
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
  call own_policy()
  call destroyed()
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

  ! A policy of the program's own: its state is in the checkpoints.
  subroutine own_policy()
    type(clt_fit_options) :: fit
    type(clt_policy) :: policy
    type(counter), target :: counts
    call execute_command_line('rm -rf own-policy')
    call make()
    call clt_policy_create('count', policy, counter_begin, counter_evaluated, counter_save, counts)
    call clt_fit_options_init(fit)
    fit%epochs = 10
    fit%checkpoint_dir = 'own-policy'
    allocate (fit%policies(1))
    fit%policies(1) = policy
    counts%last = 2
    call clt_fit(trainer, data, data, fit)
    call expect(counts%count == 2 .and. .not. counts%resumed, 'the policy ends the run')
    call expect(clt_trainer_steps(trainer) == 2 * n / batch, 'the run ends after its second epoch')

    counts = counter()
    counts%last = 5
    call make()
    fit%resume = 1
    call clt_fit(trainer, data, data, fit)
    call expect(counts%resumed .and. counts%count == 5, 'the count goes on where the checkpoint has it')
    call expect(clt_trainer_steps(trainer) == 5 * n / batch, 'the resumed run ends after its fifth epoch')
    call expect(counts%loss >= 0, 'the loss of the test set')

    counts%fails = .true.
    call clt_fit(trainer, data, data, fit, stat, message)
    call expect(stat == CLT_UNSUPPORTED, 'the status of a policy that fails')
    call expect_failure(stat, message, 'the counter has had enough')
    counts = counter()
    counts%cuts = .true.
    call make()
    fit%resume = 0
    fit%epochs = 1
    call clt_fit(trainer, data, data, fit, stat, message)
    call expect_failure(stat, message, 'the state of policy count is not JSON')
    call clt_policy_create('a' // char(0), policy, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'clt_policy_create: name has char(0) at place 2')
    call clt_policy_create('nothing', fit%policies(1))
    call clt_fit(trainer, data, data, fit)
  end subroutine

  ! A callback destroys everything. The run goes on to its end, and everything is freed then.
  subroutine destroyed()
    type(clt_fit_options) :: fit
    type(clt_watched) :: watched
    type(everything), target :: all
    integer(c_int64_t) :: now
    call make()
    trainer = clt_trainer()
    store = clt_store()
    now = clt_f_live()
    call make()
    all%trainer = trainer
    all%store = store
    trainer = clt_trainer()
    store = clt_store()
    call clt_dataset_create_arrays('line', n, all%data)
    call clt_dataset_add_array(all%data, 'x', x)
    call clt_dataset_add_array(all%data, 'y', y)
    watched%metric = 'loss'
    call clt_policy_patience(watched, 20, all%policy)
    call clt_fit_options_init(fit)
    fit%epochs = 3
    allocate (fit%policies(1))
    fit%policies(1) = all%policy
    fit%on_epoch => on_epoch
    fit%user => all
    call clt_fit(all%trainer, all%data, options=fit, stat=stat, errmsg=message)
    call expect(stat == 0 .and. all%epochs == 3 .and. all%loss > 0, 'the run goes on: ' // message)
    call clt_fit(all%trainer, all%data, options=fit, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'clt_fit: trainer was destroyed')
    call expect(clt_f_live() == now, 'everything was freed')
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

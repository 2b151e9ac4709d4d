! What the callbacks of the program below see.
module reports
  use, intrinsic :: iso_c_binding
  use cltrain
  implicit none
  type :: report
    integer :: steps = 0, epochs = 0, stop_after = 1000
    real(8) :: last = 0, test = 0
  end type

contains

  subroutine on_step(user, progress)
    class(*), intent(inout) :: user
    type(clt_progress), intent(in) :: progress
    select type (user)
    type is (report)
      user%steps = user%steps + 1
      user%last = progress%loss
    end select
  end subroutine

  subroutine on_epoch(user, progress)
    class(*), intent(inout) :: user
    type(clt_progress), intent(in) :: progress
    select type (user)
    type is (report)
      user%epochs = user%epochs + 1
      user%test = progress%test_loss
      if (allocated(progress%test_means)) user%test = progress%test_means(1)
    end select
  end subroutine

  function should_stop(user) result(stop_now)
    class(*), intent(inout) :: user
    integer(c_int) :: stop_now
    stop_now = 0
    select type (user)
    type is (report)
      if (user%steps >= user%stop_after) stop_now = 1
    end select
  end function

  function fill(user, indices, count, fields) result(status)
    class(*), intent(inout) :: user
    integer(c_int64_t), intent(in) :: indices(:), count
    type(c_ptr), intent(in) :: fields
    integer(c_int) :: status
    type(c_ptr), pointer :: list(:)
    real(4), pointer :: x(:, :), y(:, :)
    call c_f_pointer(fields, list, [2])
    call c_f_pointer(list(1), x, [2, int(count)])
    call c_f_pointer(list(2), y, [1, int(count)])
    x(1, :) = real(indices)
    x(2, :) = 1
    y = 2
    select type (user)
    type is (report)
      user%steps = user%steps + int(count)
    end select
    status = 0
  end function

  subroutine on_line(user, level, line)
    class(*), intent(inout) :: user
    integer(c_int), intent(in) :: level
    character(*), intent(in) :: line
    select type (user)
    type is (report)
      user%steps = user%steps + merge(1, 0, level >= 0 .and. len(line) > 0)
    end select
  end subroutine
end module

! Options, callbacks, data sets, texts and results.
program options
  use, intrinsic :: iso_c_binding
  use checks
  use reports
  implicit none
  integer, parameter :: n = 96
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  character(300) :: message
  integer :: stat

  call make_trainer(2, 32, store, trainer)
  call fits()
  call sections()
  call not_set_up()
  call infos()
  call callback_data()
  call reservoir()
  call log()
  call finish()

contains

  subroutine fits()
    type(clt_dataset) :: train
    type(clt_fit_options) :: fit
    type(report), target :: seen
    real(8) :: table(4, n), sums(1), weights(1)
    real(8) :: few(0)
    integer :: i, field
    do i = 1, n
      table(:, i) = [sin(real(i, 8)), cos(real(i, 8)), 0d0, 0d0]
      table(4, i) = table(1, i) * table(2, i)
    end do
    call clt_dataset_create_arrays('table', n, train)
    call clt_dataset_add_array(train, 'x', table(1:2, :))
    call clt_dataset_add_array(train, 'y', table(4:4, :), field)
    table = 1d30 ! the data set has copies
    call expect(field == 1 .and. clt_dataset_count(train) == n, 'a data set of sections')
    call clt_fit_options_init(fit)
    fit%epochs = 2
    fit%on_step => on_step
    fit%on_epoch => on_epoch
    fit%should_stop => should_stop
    fit%user => seen
    call clt_fit(trainer, train, train, fit)
    call expect(seen%steps == 6 .and. seen%epochs == 2, 'reports reach the program')
    call expect(seen%last > 0 .and. seen%last < 10, 'a report has the loss')
    call clt_evaluate(trainer, train, sums=sums, weights=weights)
    call expect(abs(sums(1) / weights(1) - seen%test) < 1e-6, 'the evaluation is that of the last report')
    call clt_evaluate(trainer, train, sums=few, weights=weights, stat=stat, errmsg=message)
    call expect_failure(stat, message, 'clt_evaluate: sums has 0 elements; it needs 1')
    seen = report(stop_after=2)
    fit%epochs = 4
    call clt_fit(trainer, train, options=fit, stat=stat, errmsg=message)
    call expect(stat == CLT_STOPPED, 'a callback stops the run: ' // message)
    call clt_dataset_find_field(train, 'yy', field, stat, message)
    call expect_failure(stat, message, 'y')
  end subroutine

  ! Texts have no trailing blanks, and may be absent.
  subroutine sections()
    character(:), allocatable :: text
    character(40) :: name = 'time'
    integer(c_int64_t) :: steps
    call clt_trainer_set_section(trainer, name, '12.5   ')
    call clt_trainer_section(trainer, 'time', text)
    call expect(text == '12.5' .and. len(text) == 4, 'a text without trailing blanks')
    steps = clt_trainer_steps(trainer)
    call clt_trainer_save_state(trainer, 'fortran-run', 1)
    call clt_trainer_set_section(trainer, 'time')
    call clt_trainer_section(trainer, 'time', text, stat, message)
    call expect_failure(stat, message, 'time')
    call clt_trainer_set_steps(trainer, 0)
    call clt_trainer_restore_state(trainer, 'fortran-run')
    call clt_trainer_section(trainer, 'time', text)
    call expect(text == '12.5' .and. clt_trainer_steps(trainer) == steps, 'a checkpoint has the state')
    call clt_trainer_section(trainer, 'tine', text, stat, message)
    call expect_failure(stat, message, 'time')
  end subroutine

  subroutine not_set_up()
    type(clt_trainer_options) :: options
    type(clt_trainer) :: other
    type(clt_graph) :: graph
    call clt_mlp_regressor(2_c_int64_t, [16_c_int64_t], 1_c_int64_t, graph=graph)
    call clt_trainer_create(graph, store, options, other, stat, message)
    call expect_failure(stat, message, 'was not set up, call clt_trainer_options_init first')
    call clt_trainer_options_init(options)
    call expect(options%batch >= 0 .and. options%momentum == -1d0, 'defaults')
    options%batch = 32
    options%lr = -1
    call clt_trainer_create(graph, store, options, other, stat, message)
    call expect_failure(stat, message, 'learning rate -1')
    options%lr = 0.1d0
    options%variants = 'matmul=nowhere'
    call clt_trainer_create(graph, store, options, other, stat, message)
    call expect_failure(stat, message, 'nowhere')
    call clt_mlp_regressor(2, [16], 1, 'tanhh', graph, stat, message)
    call expect_failure(stat, message, 'tanh')
    call expect(clt_status_name(stat) == 'NOT_FOUND', 'stat is the status of C')
    call clt_trainer_result(trainer, -5, result=result_of(), stat=stat, errmsg=message)
    call expect(stat /= 0, 'no such step')
  end subroutine

  function result_of() result(r)
    type(clt_step_result), pointer :: r
    allocate (r)
  end function

  subroutine infos()
    type(clt_runtime) :: runtime
    type(clt_device_info) :: info
    type(clt_runtime_options) :: options
    call clt_runtime_options_init(options)
    call expect(.not. allocated(options%cache_dir), 'NULL is a text that is not allocated')
    options%cache_dir = ''
    call clt_runtime_create(options, runtime)
    call expect(clt_runtime_device_count(runtime) > 0, 'devices')
    call clt_runtime_device_info(runtime, 0, info)
    call expect(len_trim(info%name) > 0 .and. info%memory_bytes > 0, 'a device: ' // trim(info%name))
    call clt_runtime_device_info(runtime, 999, info, stat, message)
    call expect_failure(stat, message, '999')
    call expect(clt_dtype_name(CLT_F32) == 'f32' .and. clt_dtype_size(CLT_F64) == 8, 'functions of values')
  end subroutine

  ! A data set whose samples the program computes when they are needed.
  subroutine callback_data()
    type(clt_dataset) :: made
    type(clt_fit_options) :: fit
    type(report), target :: count
    call clt_dataset_create_callback('made', 64, fill, count, 1, made)
    call clt_dataset_add_field_of(made)
    call clt_fit_options_init(fit)
    call clt_trainer_set_steps(trainer, 0)
    call clt_fit(trainer, made, options=fit, stat=stat, errmsg=message)
    call expect(stat == 0, 'a callback fills samples: ' // message)
    call expect(count%steps >= 64, 'each sample was filled')
  end subroutine

  ! Samples that a simulation pushes while it runs.
  subroutine reservoir()
    type(clt_store) :: own
    type(clt_trainer) :: learner
    real(8) :: loss, first
    integer :: step
    call make_trainer(2, 32, own, learner)
    call fill_reservoir(learner)
    call clt_step_reservoir(learner, 1, first)
    do step = 1, 20
      call clt_step_reservoir(learner, 10)
    end do
    call clt_step_reservoir(learner, 1, loss)
    call expect(clt_trainer_steps(learner) == 202 .and. loss < first / 2, 'steps draw from the reservoir')
    call clt_trainer_set_reservoir(learner)
    call clt_step_reservoir(learner, 1, loss, stat, message)
    call expect_failure(stat, message, 'reservoir')
  end subroutine

  ! The trainer keeps the reservoir after its last handle is gone.
  subroutine fill_reservoir(learner)
    type(clt_trainer), intent(in) :: learner
    type(clt_dataset) :: pool
    type(clt_reservoir_stats) :: stats
    real(8) :: cells(5, 40)
    integer :: i
    call clt_dataset_create_reservoir('cells', 100, reservoir_options(), pool)
    call clt_dataset_add_field(pool, 'x', CLT_F32, [2])
    call clt_dataset_add_field(pool, 'y', CLT_F32, [1])
    do i = 1, 5
      call random_number(cells)
      cells(5, :) = cells(1, :) - cells(3, :)
      call clt_dataset_push(pool, cells(1:3:2, :), cells(5:5, :))
    end do
    call clt_dataset_reservoir_stats(pool, stats)
    call expect(stats%seen == 200 .and. stats%kept == 100, 'a reservoir keeps what it has room for')
    call clt_dataset_push(pool, cells(1:3, :), cells(5:5, :), stat=stat, errmsg=message)
    call expect(stat /= 0, 'a wrong shape is refused: ' // message)
    call clt_dataset_push(pool, cells(1:2, :), cells(5:5, :20), stat=stat, errmsg=message)
    call expect(stat /= 0, 'unlike numbers of samples are refused: ' // message)
    call clt_trainer_set_reservoir(learner, pool)
  end subroutine

  function reservoir_options() result(options)
    type(clt_reservoir_options) :: options
    call clt_reservoir_options_init(options)
    options%policy = CLT_RESERVOIR_NEWEST
  end function

  subroutine clt_dataset_add_field_of(made)
    type(clt_dataset), intent(in) :: made
    call clt_dataset_add_field(made, 'x', CLT_F32, [2])
    call clt_dataset_add_field(made, 'y', CLT_F32, [1])
  end subroutine

  subroutine log()
    type(report), target, save :: lines
    type(clt_graph) :: graph
    call clt_log_set(on_line, lines, CLT_LOG_DEBUG)
    call clt_graph_create(graph)
    call clt_log_set(max_level=CLT_LOG_ERROR)
    call expect(.true., 'a log can be set and taken back')
  end subroutine

end program

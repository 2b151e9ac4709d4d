! Bad input between steps: one line that names what is wrong, and nothing is lost. A trainer that saw all of it
! has the bits of one that saw none.
program bad_input
  use checks
  implicit none
  integer, parameter :: n = 12, rows = 29
  type(clt_store) :: clean_store, store
  type(clt_trainer) :: clean, trainer
  character(240) :: message
  real(8) :: x(3, n), y(1, n), losses(2)
  real(4) :: w(3, 16), other(3, 16)
  integer :: stat, row, i

  call make_trainer(3, n, clean_store, clean)
  call make_trainer(3, n, store, trainer)
  call clt_trainer_set_section(trainer, 'time', '1.5')
  x = reshape([(sin(real(i, 8)), i = 1, 3 * n)], [3, n])
  y(1, :) = x(1, :) * x(2, :)
  do row = 1, rows
    call bad(row)
    call clt_step_arrays(clean, 'x', x, 'y', y, loss=losses(1))
    call clt_step_arrays(trainer, 'x', x, 'y', y, loss=losses(2))
    call expect(losses(1) == losses(2), 'a step behind bad input has the same loss')
  end do
  call clt_store_get_array(clean_store, 'fc1.weight', w)
  call clt_store_get_array(store, 'fc1.weight', other)
  call expect(all(w == other), 'bad input changes no bit')
  call finish()

contains

  subroutine bad(number)
    integer, intent(in) :: number
    complex(8) :: c(3, n)
    logical :: l(3, n)
    integer(8) :: k(3, n)
    real(8), allocatable :: nothing(:, :)
    type(clt_fit_options) :: fit
    type(clt_step_batch) :: batch
    type(clt_trainer_options) :: options
    type(clt_device), allocatable :: devices(:)
    type(clt_graph) :: graph
    type(clt_dataset) :: set
    type(clt_store) :: gone_store
    type(clt_trainer) :: gone
    character(:), allocatable :: text
    character(60) :: part
    c = 1
    l = .true.
    k = 1
    message = ''
    select case (number)
    case (1) ! rank
      call clt_step_arrays(trainer, 'x', x(:, 1), 'y', y, stat=stat, errmsg=message)
      part = 'feed'
    case (2) ! a dimension
      call clt_step_arrays(trainer, 'x', x(:2, :), 'y', y, stat=stat, errmsg=message)
      part = 'feed x is f64 [12, 2], and must be'
    case (3) ! turned
      call clt_step_arrays(trainer, 'x', transpose(x), 'y', y, stat=stat, errmsg=message)
      part = 'feed'
    case (4) ! kinds
      call clt_step_arrays(trainer, 'x', c, 'y', y, stat=stat, errmsg=message)
      part = 'array x is complex'
    case (5)
      call clt_step_arrays(trainer, 'x', l, 'y', y, stat=stat, errmsg=message)
      part = 'array x is logical'
    case (6)
      call clt_step_arrays(trainer, 'x', k, 'y', y, stat=stat, errmsg=message)
      part = 'feed x is i64 [12, 3], and must be f32'
    case (7) ! too small, with gaps
      call clt_step_arrays(trainer, 'x', x, 'y', y(:, ::2), stat=stat, errmsg=message)
      part = 'feed y'
    case (8)
      call clt_store_get_array(store, 'fc1.weight', other(:2, :), stat, message)
      part = 'fc1.weight'
    case (9) ! nothing in it
      allocate (nothing(3, 0))
      call clt_step_arrays(trainer, 'x', nothing, 'y', y, stat=stat, errmsg=message)
      part = 'feed y'
    case (10) ! names
      call clt_step_arrays(trainer, 'z', x, 'y', y, stat=stat, errmsg=message)
      part = 'z'
    case (11)
      call clt_store_get_array(store, 'fc1.wieght', other, stat, message)
      part = 'fc1.weight'
    case (12)
      call clt_trainer_section(trainer, 'tme', text, stat, message)
      part = "did you mean 'time'?"
    case (13) ! a freed handle
      call make_trainer(3, n, gone_store, gone)
      call clt_trainer_destroy(gone)
      call clt_step_arrays(gone, 'x', x, 'y', y, stat=stat, errmsg=message)
      part = 'trainer was destroyed'
    case (14) ! files
      call open_csv(['a,b,y  ', '1,2,3  ', '4,NaN,6', '7,8,9  '])
      part = "line 3, column 2 ('b')"
    case (15)
      call open_csv(['a,b,y  ', '1,2,3  ', '4,5,6,7', '7,8,9  '])
      part = 'line 3, column 4'
    case (16)
      call open_csv(['a,b,y  ', '1,2,3  ', '4,5,6  ', '7,8    '])
      part = "line 4, column 3 ('y')"
    case (17) ! char(0), where C would end a text
      call clt_trainer_set_section(trainer, 'ti' // char(0) // 'me', '1', stat, message)
      part = 'clt_trainer_set_section: name has char(0) at place 3'
    case (18)
      call clt_trainer_set_section(trainer, 'mesh', '12' // char(0), stat, message)
      part = 'text has char(0) at place 3'
    case (19)
      call clt_trainer_section(trainer, 'time' // char(0) // 'x', text, stat, message)
      part = 'name has char(0) at place 5'
    case (20)
      call clt_step_arrays(trainer, 'x', x, 'y' // char(0) // 'z', y, stat=stat, errmsg=message)
      part = 'clt_step_arrays: name2 has char(0)'
    case (21)
      call clt_predict_arrays(trainer, 'x', x, 'prediction' // char(0), y, stat=stat, errmsg=message)
      part = 'clt_predict_arrays: fetch has char(0)'
    case (22)
      call clt_store_save(store, 'a' // char(0) // 'b', stat, message)
      part = 'has char(0) at place 2'
    case (23)
      call clt_fit_options_init(fit)
      fit%checkpoint_dir = 'run' // char(0)
      call clt_dataset_create_arrays('d', n, set)
      call clt_fit(trainer, set, options=fit, stat=stat, errmsg=message)
      part = 'clt_fit: checkpoint_dir has char(0) at place 4'
    case (25)
      call clt_step_arrays(trainer, 'x', 1.0, 'y', 2.0, stat=stat, errmsg=message)
      part = 'clt_step_arrays: no array has a dimension'
    case (24)
      call clt_dataset_create_arrays(char(0), n, set, stat, message)
      part = 'name has char(0) at place 1'
    case (26) ! arrays with fewer elements than C reads
      batch%offsets = [0_8]
      call clt_trainer_step(trainer, 'x', x, 'y', y, batch=batch, stat=stat, errmsg=message)
      part = "the batch's offsets must begin with 0 and end with"
    case (27)
      allocate (batch%loss_weights(0))
      call clt_trainer_step(trainer, 'x', x, 'y', y, batch=batch, stat=stat, errmsg=message)
      part = "the batch's loss_weights need a number"
    case (28)
      call open_devices(devices)
      call clt_mlp_regressor(3, [16], 1, graph=graph)
      call clt_store_create(graph, devices, 3, gone_store)
      call clt_trainer_options_init(options)
      options%weights = [real(8) ::]
      call clt_trainer_create(graph, gone_store, options, gone, stat, message)
      part = 'the weights need a finite number for each of'
    case (29)
      call clt_dataset_create_arrays('d', n, set)
      call clt_dataset_add_array(set, 'x', x)
      call clt_dataset_add_array(set, 'y', y)
      call clt_fit_options_init(fit)
      fit%mean = [0.5d0] ! without std, which is 1 then
      call clt_fit(trainer, set, options=fit, stat=stat, errmsg=message)
      part = 'mean and std are given'
    end select
    call expect_failure(stat, message, trim(part))
  end subroutine

  subroutine open_csv(lines)
    character(*), intent(in) :: lines(:)
    type(clt_dataset_options) :: options
    type(clt_dataset) :: set
    integer :: unit
    open (newunit=unit, file='bad-input.csv', status='replace')
    write (unit, '(a)') (trim(lines(i)), i = 1, size(lines))
    close (unit)
    call clt_dataset_options_init(options)
    call clt_dataset_open('csv:bad-input.csv', options, set, stat, message)
  end subroutine
end program

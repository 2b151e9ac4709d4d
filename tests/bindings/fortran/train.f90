! Trains an MLP on sections of arrays of real(8). train.c does the same, and prints the same bits.
program train
  use, intrinsic :: iso_c_binding
  use checks
  implicit none
  integer, parameter :: n = 64
  type(clt_device), allocatable :: devices(:)
  type(clt_graph) :: graph
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  type(clt_trainer_options) :: options
  real(8) :: state(5, n), loss, w(2, 16)
  real(8), target :: flux(n, 3)
  integer(8) :: seed = 1
  integer :: step, i, j

  call open_devices(devices)
  call clt_mlp_regressor(2, [16, 16], 1, 'tanh', graph)
  call clt_store_create(graph, devices, 11, store)
  call clt_trainer_options_init(options)
  options%optimizer = CLT_ADAM
  options%lr = 0.01d0
  options%batch = n
  call clt_trainer_create(graph, store, options, trainer)
  do step = 1, 200
    do i = 1, n
      do j = 1, 2
        seed = mod(seed * 1103515245_8 + 12345_8, 2147483648_8)
        state(2 * j, i) = real(seed, 8) / 2147483648.0d0
      end do
      flux(i, 2) = 3 * state(2, i) - state(4, i) / 7
    end do
    call clt_step_arrays(trainer, 'x', state(2:4:2, :), 'y', one_row(), loss=loss)
    print '(z16.16)', loss
  end do
  call clt_store_get_array(store, 'fc1.weight', w)
  do i = 1, 16
    print '(z16.16, 1x, z16.16)', w(1, i), w(2, i)
  end do

contains

  ! flux(:, 2) as an array of one row.
  function one_row() result(row)
    real(8), pointer :: row(:, :)
    row(1:1, 1:n) => flux(:, 2)
  end function
end program

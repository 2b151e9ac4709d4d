! Rods warm up from their ends. heat.f90 is heat_untouched.f90 with a network that learns meanwhile to predict a
! rod ten time steps later.
program heat
  use cltrain
  implicit none
  integer, parameter :: rods = 64, cells = 32, steps = 200
  real :: now(cells, rods), next(cells, rods)
  integer :: r, step
  type(clt_runtime) :: runtime
  type(clt_device), allocatable :: devices(:)
  type(clt_graph) :: graph
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  type(clt_trainer_options) :: options
  type(clt_dataset) :: samples
  real(8) :: loss

  now = 0
  do r = 0, rods - 1
    now(1, r + 1) = mod(r, 8) / 8.0
    now(cells, r + 1) = (r / 8) / 16.0
  end do
  call clt_runtime_create(runtime=runtime)
  call clt_devices_open(runtime, 'cpu', devices=devices)
  call clt_mlp_regressor(cells, [64], cells, 'tanh', graph)
  call clt_store_create(graph, devices, 0, store)
  call clt_trainer_options_init(options)
  call clt_optimizer_defaults(CLT_ADAM, options)
  options%batch = rods
  call clt_trainer_create(graph, store, options, trainer)
  call clt_dataset_create_reservoir('rods', 1024, dataset=samples)
  call clt_trainer_set_reservoir(trainer, samples)
  do step = 1, steps
    next = advanced(now)
    print '(a, i0, a, f8.6)', 'step ', step, ': mean temperature ', sum(real(next, 8)) / size(next)
    call clt_dataset_push(samples, now, next)
    call clt_step_reservoir(trainer, 1, loss)
    print '(a, es14.8)', 'loss ', loss
    now = next
  end do
  call clt_store_save(store, 'heat.safetensors')

contains

  ! Ten explicit steps of the heat equation. A rod conducts better where it is warm.
  pure function advanced(start) result(u)
    real, intent(in) :: start(:, :)
    real :: u(cells, rods), old(cells, rods)
    integer :: n
    u = start
    do n = 1, 10
      old = u
      u(2:cells - 1, :) = old(2:cells - 1, :) + 0.2 * (1 + old(2:cells - 1, :) * old(2:cells - 1, :)) &
                          * (old(1:cells - 2, :) - 2 * old(2:cells - 1, :) + old(3:, :))
    end do
  end function
end program
